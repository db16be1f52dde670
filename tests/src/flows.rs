//! Many established TCP flows: each carries a request and a response whenever asked to.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use fairpath_testbed::Netns;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// A retransmission timeout or two, on a machine that floods itself.
const TIMEOUT: Duration = Duration::from_secs(60);

/// For everything else that the tests of this process have open.
const SPARE_DESCRIPTORS: u64 = 512;

/// Open flows, both ends of them.
#[derive(Debug)]
pub struct Flows {
    ends: Vec<[TcpStream; 2]>,
}

impl Flows {
    /// As many flows as this process may have descriptors for, at most `wanted`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn possible(wanted: usize) -> io::Result<usize> {
        let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let flows = most.saturating_sub(SPARE_DESCRIPTORS) / 2;
        Ok(wanted.min(usize::try_from(flows).unwrap_or(usize::MAX)))
    }

    /// Opens `count` flows from `client` to `ip` in `server`, one after the other.
    ///
    /// # Errors
    /// What the kernel says, descriptors short among them.
    pub fn open(client: &Netns, server: &Netns, ip: IpAddr, count: usize) -> io::Result<Flows> {
        let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
        let listener = server
            .enter(|| TcpListener::bind(SocketAddr::new(ip, 0)))
            .map_err(io::Error::other)??;
        let to = listener.local_addr()?;
        let open = || {
            let mut ends = Vec::with_capacity(count);
            for _ in 0..count {
                let pair = [TcpStream::connect(to)?, listener.accept()?.0];
                for end in &pair {
                    end.set_nodelay(true)?;
                    end.set_read_timeout(Some(TIMEOUT))?;
                }
                ends.push(pair);
            }
            Ok(Flows { ends })
        };
        client.enter(open).map_err(io::Error::other)?
    }

    /// The clients' ports.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn ports(&self) -> io::Result<Vec<u16>> {
        self.ends
            .iter()
            .map(|[client, _]| Ok(client.local_addr()?.port()))
            .collect()
    }

    /// One request and one response over every flow; all requests are under way at once.
    ///
    /// # Errors
    /// Where a flow broke, or stood still for a minute.
    pub fn exchange(&mut self) -> io::Result<()> {
        let mut bytes = [0; 100];
        for [client, _] in &mut self.ends {
            client.write_all(&bytes)?;
        }
        for [_, server] in &mut self.ends {
            server.read_exact(&mut bytes)?;
            server.write_all(&bytes)?;
        }
        for [client, _] in &mut self.ends {
            client.read_exact(&mut bytes)?;
        }
        Ok(())
    }
}
