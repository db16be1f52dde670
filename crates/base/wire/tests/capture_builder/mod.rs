//! Captures as other programs write them, which our own writer does not: both byte orders, every block, every resolution.

#![allow(dead_code, reason = "each test file uses its part")]

/// Byte order of the file to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Little,
    Big,
}

pub const ORDERS: [Order; 2] = [Order::Little, Order::Big];

/// A file under construction.
pub struct CaptureBuilder {
    pub order: Order,
    pub bytes: Vec<u8>,
}

impl CaptureBuilder {
    pub fn new(order: Order) -> CaptureBuilder {
        CaptureBuilder {
            order,
            bytes: Vec::new(),
        }
    }

    pub fn u16(&mut self, value: u16) -> &mut CaptureBuilder {
        self.bytes.extend(match self.order {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        });
        self
    }

    pub fn u32(&mut self, value: u32) -> &mut CaptureBuilder {
        self.bytes.extend(match self.order {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        });
        self
    }

    pub fn u64(&mut self, value: u64) -> &mut CaptureBuilder {
        self.bytes.extend(match self.order {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        });
        self
    }

    pub fn raw(&mut self, bytes: &[u8]) -> &mut CaptureBuilder {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// A pcap file header.
    pub fn pcap(order: Order, magic: u32, minor: u16, network: u32) -> CaptureBuilder {
        let mut file = CaptureBuilder::new(order);
        file.u32(magic)
            .u16(2)
            .u16(minor)
            .u32(0)
            .u32(0)
            .u32(65_535)
            .u32(network);
        file
    }

    /// A pcapng block of any type; pads the body.
    pub fn block(
        &mut self,
        kind: u32,
        body: impl FnOnce(&mut CaptureBuilder),
    ) -> &mut CaptureBuilder {
        let mut inner = CaptureBuilder::new(self.order);
        body(&mut inner);
        inner.bytes.resize(inner.bytes.len().next_multiple_of(4), 0);
        let len = inner.bytes.len() as u32 + 12;
        self.u32(kind).u32(len).raw(&inner.bytes).u32(len)
    }

    pub fn section(&mut self) -> &mut CaptureBuilder {
        self.block(0x0a0d_0d0a, |b| {
            b.u32(0x1a2b_3c4d).u16(1).u16(0).u64(u64::MAX);
        })
    }

    pub fn option(&mut self, code: u16, value: &[u8]) -> &mut CaptureBuilder {
        self.u16(code).u16(value.len() as u16).raw(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    pub fn option_u64(&mut self, code: u16, value: u64) -> &mut CaptureBuilder {
        self.u16(code).u16(8).u64(value)
    }

    pub fn interface(
        &mut self,
        link: u16,
        snap_len: u32,
        options: impl FnOnce(&mut CaptureBuilder),
    ) -> &mut CaptureBuilder {
        self.block(1, |b| {
            b.u16(link).u16(0).u32(snap_len);
            options(b);
        })
    }

    pub fn enhanced(
        &mut self,
        interface: u32,
        ticks: u64,
        wire_len: u32,
        data: &[u8],
    ) -> &mut CaptureBuilder {
        self.enhanced_with(interface, ticks, wire_len, data, |_| {})
    }

    pub fn enhanced_with(
        &mut self,
        interface: u32,
        ticks: u64,
        wire_len: u32,
        data: &[u8],
        options: impl FnOnce(&mut CaptureBuilder),
    ) -> &mut CaptureBuilder {
        self.block(6, |b| {
            b.u32(interface).u32((ticks >> 32) as u32).u32(ticks as u32);
            b.u32(data.len() as u32).u32(wire_len).raw(data);
            b.bytes.resize(b.bytes.len().next_multiple_of(4), 0);
            options(b);
        })
    }

    /// A pcapng file with everything in it that a reader meets: two sections, three interfaces, every packet block.
    pub fn everything(order: Order) -> Vec<u8> {
        let mut file = CaptureBuilder::new(order);
        file.section();
        file.interface(1, 0, |b| {
            b.option(2, b"wan0")
                .option(3, b"uplink")
                .option(9, &[9])
                .option_u64(14, 100)
                .option(0, &[]);
        });
        file.block(0x0bad, |b| {
            b.raw(&[7; 101]);
        });
        file.interface(101, 8, |_| {});
        file.enhanced(0, 5, 60, &[1; 59]);
        file.enhanced_with(1, 7, 4, &[2; 4], |b| {
            b.option(1, b"a comment")
                .option_u64(4, 0)
                .u16(2)
                .u16(4)
                .u32(0x8000_0002)
                .option(0, &[]);
        });
        file.block(5, |b| {
            b.raw(&[0; 12]);
        });
        file.block(2, |b| {
            b.u16(1)
                .u16(0xffff)
                .u32(0)
                .u32(9)
                .u32(3)
                .u32(3)
                .raw(&[3; 3])
                .raw(&[0]);
            b.u16(2).u16(4).u32(1).option(0, &[]);
        });
        file.block(9, |b| {
            b.raw(b"__REALTIME_TIMESTAMP=1\nMESSAGE=hello\n");
        });
        file.section();
        file.interface(113, 4, |b| {
            b.option(9, &[0x80 | 10]);
        });
        file.block(3, |b| {
            b.u32(60).raw(&[4; 4]);
        });
        file.enhanced(0, 1 << 9, 1, &[5]);
        file.bytes
    }
}
