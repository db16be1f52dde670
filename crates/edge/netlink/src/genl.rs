//! Generic netlink: families found by name.

use netlink_sys::protocols::NETLINK_GENERIC;

use crate::connection::{Connection, NetlinkError, acked};
use crate::message::{Received, Request, attr, u16_at};

const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// `struct genlmsghdr`.
const GENL_HEADER_LEN: usize = 4;

/// An open socket and the number of one family.
#[derive(Debug)]
pub(crate) struct Family {
    connection: Connection,
    id: u16,
}

impl Family {
    /// `ENOENT` means that the kernel has no such family.
    pub(crate) fn open(name: &str) -> Result<Family, NetlinkError> {
        let mut connection = Connection::open(NETLINK_GENERIC)?;
        let request = Request::new(GENL_ID_CTRL, acked(0), &[CTRL_CMD_GETFAMILY, 1, 0, 0])
            .attr_str(CTRL_ATTR_FAMILY_NAME, name);
        let operation = "look up generic netlink family";
        let mut id = None;
        connection.query(operation, request, |message| {
            id = attr(body(message), CTRL_ATTR_FAMILY_ID).and_then(|v| u16_at(v, 0));
        })?;
        let id = id.ok_or(NetlinkError::Malformed {
            operation,
            lacks: "the family's number",
        })?;
        Ok(Family { connection, id })
    }

    /// A request for `command`, to be filled and passed to [`Family::query`].
    pub(crate) fn request(&self, command: u8) -> Request {
        Request::new(self.id, acked(0), &[command, 1, 0, 0])
    }

    /// The attributes of the answer, converted. `None` if the driver or the kernel does not support
    /// the request.
    pub(crate) fn query<T>(
        &mut self,
        operation: &'static str,
        request: Request,
        convert: impl Fn(&[u8]) -> T,
    ) -> Result<Option<T>, NetlinkError> {
        let mut answer = None;
        let requested = self.connection.query(operation, request, |message| {
            answer = Some(convert(body(message)));
        });
        match requested {
            Ok(()) => Ok(answer),
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn body<'a>(message: &Received<'a>) -> &'a [u8] {
    message.payload.get(GENL_HEADER_LEN..).unwrap_or(&[])
}
