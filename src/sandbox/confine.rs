//! The locks, in the order in which they are closed. Each one is named when the kernel lacks it; one that the kernel
//! has and that does not close ends the child.

use super::protocol::Limits;
use super::sys;
use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetStatus, Scope};
use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, geteuid, getpid, setgroups, setresgid, setresuid};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::io;

/// The user and group `nobody` of the Linux Standard Base and of every kernel (overflowuid).
const NOBODY: u32 = 65534;

/// Limits the memory, processor time and files of this process. No core of it is ever written: it would hold pieces
/// of the user's disk.
pub fn limit(limits: &Limits) -> io::Result<()> {
    setrlimit(Resource::RLIMIT_AS, limits.memory, limits.memory)?;
    setrlimit(Resource::RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds.saturating_add(5))?;
    setrlimit(Resource::RLIMIT_FSIZE, 0, 0)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    Ok(())
}

/// Forbids new descriptors, threads and processes. The last is effective only for a process without privileges, so
/// after [`drop_privileges`].
pub fn forbid_more() -> io::Result<()> {
    setrlimit(Resource::RLIMIT_NOFILE, 0, 0)?;
    setrlimit(Resource::RLIMIT_NPROC, 0, 0)?;
    Ok(())
}

/// Gives up root, every capability, and the way back to them. Call it before the first thread is made.
pub fn drop_privileges(shortfalls: &mut Vec<String>) -> io::Result<()> {
    empty_bounding_set()?;
    if geteuid().is_root()
        && let Err(errno) = become_nobody()
    {
        // A user namespace that maps root alone has nobody else to become. What is left of root loses its
        // capabilities below, and the filter forbids everything that an owner may do.
        shortfalls.push(format!("the reader stayed user 0, which has no rights outside its container ({errno})"));
    }
    match sys::drop_ambient_set() {
        Ok(()) | Err(Errno::EINVAL) => {} // EINVAL: Linux before 4.3, which has no ambient set
        Err(errno) => return Err(errno.into()),
    }
    sys::drop_capabilities()?;
    nix::sys::prctl::set_no_new_privs()?;
    // No process of the same user may look into this one.
    nix::sys::prctl::set_dumpable(false)?;
    Ok(())
}

fn become_nobody() -> nix::Result<()> {
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    setgroups(&[])?;
    setresgid(group, group, group)?;
    setresuid(user, user, user)
}

/// Without CAP_SETPCAP the set cannot shrink, but then there is nothing to gain from it either: no_new_privs is on
/// and execve is forbidden.
fn empty_bounding_set() -> io::Result<()> {
    for capability in 0..64 {
        match sys::drop_from_bounding_set(capability) {
            Ok(()) => {}
            Err(Errno::EINVAL | Errno::EPERM) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Takes away every file and port that Landlock can take away. Holds for threads made later.
pub fn forbid_files(shortfalls: &mut Vec<String>) -> io::Result<()> {
    let newest = ABI::V6;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(newest))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(newest)))
        .and_then(|rules| rules.scope(Scope::from_all(newest)))
        .and_then(landlock::Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self)
        .map_err(io::Error::other)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => {}
        RulesetStatus::PartiallyEnforced => {
            shortfalls.push("this kernel's Landlock is older than version 6".to_owned());
        }
        RulesetStatus::NotEnforced => shortfalls.push("this kernel has no Landlock".to_owned()),
    }
    Ok(())
}

/// Allows the few system calls that reading, computing and answering need, in every thread of the process. Any other
/// kills the process at once.
pub fn forbid_system_calls(shortfalls: &mut Vec<String>) -> io::Result<()> {
    let Ok(architecture) = TargetArch::try_from(std::env::consts::ARCH) else {
        shortfalls.push(format!("no system call filter for {}", std::env::consts::ARCH));
        return Ok(());
    };
    let program = filter(architecture).map_err(io::Error::other)?;
    match seccompiler::apply_filter_all_threads(&program) {
        Ok(()) => Ok(()),
        // EINVAL: a kernel without CONFIG_SECCOMP_FILTER; ENOSYS: one without seccomp(2).
        Err(seccompiler::Error::Seccomp(error))
            if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) =>
        {
            shortfalls.push("this kernel has no system call filter (seccomp)".to_owned());
            Ok(())
        }
        Err(error) => Err(io::Error::other(error)),
    }
}

/// System calls that are harmless whatever their arguments are: the descriptors are few and read-only.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_sched_yield,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

fn filter(architecture: TargetArch) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    // Memory, but never memory that can be executed.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![SeccompRule::new(vec![without_bits(2, bits(libc::PROT_EXEC))?])?]);
    }
    // abort() sends SIGABRT to itself; a death with a name explains more than one by the filter.
    let own = u64::try_from(getpid().as_raw()).unwrap_or(0);
    let abort = SeccompRule::new(vec![equals(0, own)?, equals(2, bits(libc::SIGABRT))?])?;
    rules.insert(libc::SYS_tgkill, vec![abort]);
    // Builds with debug assertions look at a descriptor once more before they close it.
    let look = SeccompRule::new(vec![equals(1, bits(libc::F_GETFD))?])?;
    rules.insert(libc::SYS_fcntl, vec![look]);
    SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, architecture)?.try_into()
}

fn bits(flags: libc::c_int) -> u64 {
    u64::from(flags.unsigned_abs())
}

fn equals(argument: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

fn without_bits(argument: u8, mask: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask), 0)
}
