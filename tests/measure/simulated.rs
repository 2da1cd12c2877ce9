//! A modelled drive behind the traits that the experiment and the trial of a route use. They share one drive and one
//! clock, as they do on a real one.

use coldtrim::measure::{Answer, Drive, Fault};
use coldtrim::plan::units::{BlockSize, ByteRange, Claims, Limits};
use coldtrim::plan::{Area, Batch, Disk, Plan, Policy, Region, Spot};
use coldtrim::transport::{BlockAccess, BlockRead, Done, ReadAfterDiscard, Transport, TransportError};
use coldtrim_ssd_model::{Content, PAGE, Readback, Ssd};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

pub const MIB: u64 = 1 << 20;

/// How a drive was when a pass that is compared began.
pub struct Moment {
    pub ssd: Ssd,
    pub now: u64,
    /// The first page that the pass wrote.
    pub first: u32,
}

/// The drive and its clock.
pub struct Shared {
    pub ssd: Ssd,
    pub now: u64,
    /// When the pass behind the sham began.
    pub at_sham: Option<Moment>,
    /// And those behind each discard.
    pub at_treatments: Vec<Moment>,
    /// Which of them the next write begins.
    next: Option<Next>,
}

#[derive(Clone, Copy)]
enum Next {
    Sham,
    Treatment,
}

#[derive(Clone)]
pub struct Bench(pub Rc<RefCell<Shared>>);

impl Bench {
    pub fn new(ssd: Ssd) -> Self {
        // A minute after whatever filled it.
        let shared = Shared { ssd, now: 60_000_000_000, at_sham: None, at_treatments: Vec::new(), next: None };
        Self(Rc::new(RefCell::new(shared)))
    }

    fn size(&self) -> u64 {
        u64::from(self.0.borrow().ssd.config().pages) * PAGE
    }
}

pub fn pages(range: ByteRange) -> Range<u32> {
    (range.start() / PAGE) as u32..(range.end() / PAGE) as u32
}

/// The plan of a drive whose `free` bytes are free.
pub fn plan(size: u64, free: &[ByteRange]) -> Plan {
    let whole = ByteRange::with_len(0, size).expect("a size");
    let disk = Disk { device: 0, size, capacity: size };
    let region = Region { device: 0, origin: "the model", ranges: free, within: whole, partition: whole };
    Plan::build(&disk, &[region], &limits(), &Policy::default()).expect("a plan")
}

fn limits() -> Limits {
    let most = 64 * MIB;
    let claims = Claims {
        lba_size: BlockSize::new(PAGE).expect("a power of two"),
        granularity: PAGE,
        alignment: 0,
        max_ranges: 64,
        max_range_bytes: most,
        max_command_bytes: most,
    };
    Limits::new(claims).expect("limits")
}

/// Discards.
impl Transport for Bench {
    fn name(&self) -> &'static str {
        "model"
    }

    fn limits(&self) -> Limits {
        limits()
    }

    fn capacity(&self) -> u64 {
        self.size()
    }

    fn read_after_discard(&self) -> ReadAfterDiscard {
        match self.0.borrow().ssd.config().readback {
            Readback::Zeros => ReadAfterDiscard::Zeros,
            Readback::OldData => ReadAfterDiscard::Undefined,
        }
    }

    fn notes(&self) -> &[String] {
        &[]
    }

    fn discard(&mut self, batch: &Batch<'_>) -> Result<Done, TransportError> {
        let shared = &mut *self.0.borrow_mut();
        let begin = shared.now;
        for range in batch.byte_ranges() {
            shared.now = shared.ssd.trim(shared.now, pages(range));
        }
        Ok(Done { took: Duration::from_nanos(shared.now - begin) })
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        let shared = &mut *self.0.borrow_mut();
        shared.now = shared.ssd.flush(shared.now);
        Ok(())
    }
}

impl BlockRead for Bench {
    fn path(&self) -> &'static str {
        "model"
    }

    fn read(&mut self, range: ByteRange) -> Result<Vec<u8>, TransportError> {
        let shared = &mut *self.0.borrow_mut();
        shared.now = shared.ssd.read(shared.now, pages(range));
        let content = |page| match shared.ssd.content(page) {
            Content::Zeros => vec![0; PAGE as usize],
            Content::Bytes(bytes) => bytes,
            Content::Written(write) => (u64::from(page) << 32 | write).to_le_bytes().repeat(PAGE as usize / 8),
        };
        Ok(pages(range).flat_map(content).collect())
    }
}

impl BlockAccess for Bench {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), TransportError> {
        let shared = &mut *self.0.borrow_mut();
        shared.now = shared.ssd.write_bytes(shared.now, (at / PAGE) as u32, bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        Transport::flush(self)
    }
}

/// What the experiment drives.
pub struct Simulated<'p> {
    pub bench: Bench,
    pub plan: &'p Plan,
    pub ceiling: Option<f64>,
    in_flight: BinaryHeap<Reverse<(u64, u64)>>,
}

impl<'p> Simulated<'p> {
    pub fn new(bench: &Bench, plan: &'p Plan, ceiling: Option<f64>) -> Self {
        Self { bench: bench.clone(), plan, ceiling, in_flight: BinaryHeap::new() }
    }
}

impl Drive for Simulated<'_> {
    fn now(&mut self) -> Duration {
        Duration::from_nanos(self.bench.0.borrow().now)
    }

    fn depth(&self, wanted: usize) -> usize {
        wanted
    }

    fn submit(&mut self, spot: &Spot<'_>) -> Result<(), Fault> {
        let shared = &mut *self.bench.0.borrow_mut();
        let written = pages(spot.range());
        if let Some(next) = shared.next.take() {
            let moment = Moment { ssd: shared.ssd.clone(), now: shared.now, first: written.start };
            match next {
                Next::Sham => shared.at_sham = Some(moment),
                Next::Treatment => shared.at_treatments.push(moment),
            }
        }
        let end = shared.ssd.write(shared.now, written);
        self.in_flight.push(Reverse((end, spot.range().len())));
        Ok(())
    }

    fn fetch(&mut self, spot: &Spot<'_>) -> Result<(), Fault> {
        let shared = &mut *self.bench.0.borrow_mut();
        let end = shared.ssd.read(shared.now, pages(spot.range()));
        self.in_flight.push(Reverse((end, spot.range().len())));
        Ok(())
    }

    fn complete(&mut self) -> Result<Answer, Fault> {
        let Reverse((end, bytes)) = self.in_flight.pop().expect("something in flight");
        let shared = &mut *self.bench.0.borrow_mut();
        shared.now = shared.now.max(end);
        Ok(Answer { bytes, at: Duration::from_nanos(shared.now) })
    }

    fn flush(&mut self) -> Result<(), Fault> {
        Transport::flush(&mut self.bench).map_err(|error| Fault::Failed(error.to_string()))
    }

    fn read(&mut self, place: ByteRange) -> Result<Duration, Fault> {
        let shared = &mut *self.bench.0.borrow_mut();
        let begin = shared.now;
        shared.now = shared.ssd.read(begin, pages(place));
        Ok(Duration::from_nanos(shared.now - begin))
    }

    fn wait(&mut self, time: Duration) -> Result<(), Fault> {
        self.bench.0.borrow_mut().now += u64::try_from(time.as_nanos()).expect("a short wait");
        Ok(())
    }

    fn sham(&mut self) -> Result<(), Fault> {
        for _ in self.plan.batches() {
            Drive::flush(self)?;
        }
        self.bench.0.borrow_mut().next = Some(Next::Sham);
        Ok(())
    }

    fn discard(&mut self) -> Result<(), Fault> {
        for batch in self.plan.batches() {
            self.bench.discard(&batch).map_err(|error| Fault::Failed(error.to_string()))?;
        }
        self.bench.0.borrow_mut().next = Some(Next::Treatment);
        Ok(())
    }

    fn discard_part(&mut self, area: &Area<'_>) -> Result<(), Fault> {
        let part = area.plan_within(self.plan).expect("a part of the plan");
        for batch in part.batches() {
            self.bench.discard(&batch).map_err(|error| Fault::Failed(error.to_string()))?;
        }
        Ok(())
    }

    fn ceiling(&self) -> Option<f64> {
        self.ceiling
    }

    fn slowdowns(&mut self) -> Option<u64> {
        let shared = self.bench.0.borrow();
        shared.ssd.config().throttle.map(|_| shared.ssd.counters().hot_pages)
    }
}
