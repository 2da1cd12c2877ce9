//! What the carriers of commands have in common.

/// The data phase of a command.
#[derive(Debug)]
pub enum Data<'b> {
    /// None.
    None,
    /// From the device, into a buffer that the caller has filled with zeros: a bridge can "succeed" without sending
    /// anything, and then the buffer must not show old bytes.
    In(&'b mut [u8]),
    /// To the device.
    Out(&'b [u8]),
}
