//! Corrupted captures: named errors, complete packets before them, never a panic, never a large allocation.

mod capture_builder;

use capture_builder::{CaptureBuilder, ORDERS, Order};
use fairpath_statistics::Random;
use fairpath_units::{Share, test_seed};
use fairpath_wire::capture::{ReadError, Reader};
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use std::io::Write;

/// Reads to the end or the first error; how many packets came before it.
fn drain(bytes: &[u8]) -> (u64, Result<(), ReadError>) {
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(e) => return (0, Err(e)),
    };
    let result = loop {
        match reader.next() {
            Ok(Some(packet)) => assert!(packet.data.len() <= bytes.len().max(1 << 18)),
            Ok(None) => break Ok(()),
            Err(e) => {
                assert!(
                    matches!(reader.next(), Ok(None)),
                    "an error ends the capture"
                );
                break Err(e);
            }
        }
    };
    (reader.packets(), result)
}

fn pcap(order: Order) -> CaptureBuilder {
    let mut file = CaptureBuilder::pcap(order, 0xa1b2_c3d4, 4, 1);
    for len in [60_u8, 0, 7] {
        file.u32(1)
            .u32(2)
            .u32(len.into())
            .u32(len.into())
            .raw(&vec![len; len.into()]);
    }
    file
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Every shape of valid file there is.
fn valid_files() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for order in ORDERS {
        files.push(pcap(order).bytes);
        files.push(CaptureBuilder::everything(order));
    }
    files.push(gzip(&files[1]));
    files
}

#[test]
fn truncated_files_yield_their_complete_packets() {
    for file in [
        pcap(Order::Big).bytes,
        CaptureBuilder::everything(Order::Big),
        CaptureBuilder::everything(Order::Little),
    ] {
        let ends = packet_ends(&file);
        for cut in 4..file.len() {
            let (packets, result) = drain(&file[..cut]);
            let complete = ends.iter().filter(|end| **end <= cut as u64).count() as u64;
            assert_eq!(packets, complete, "cut at {cut}");
            match result {
                Ok(()) => {}
                Err(ReadError::Truncated {
                    offset,
                    end,
                    packet,
                }) => {
                    assert!(
                        (1..=3).contains(&(packet - complete)),
                        "two numbers go to other blocks"
                    );
                    assert!(offset < end && end == cut as u64);
                }
                Err(e) => panic!("cut at {cut}: {e}"),
            }
        }
    }
}

fn packet_ends(file: &[u8]) -> Vec<u64> {
    let mut reader = Reader::new(file).unwrap();
    let mut ends = Vec::new();
    while reader.next().unwrap().is_some() {
        ends.push(reader.offset());
    }
    ends
}

#[test]
fn truncated_gzip_is_a_truncated_capture() {
    let file = CaptureBuilder::everything(Order::Little);
    let packed = gzip(&file);
    // The last eight bytes are the checksum and the length.
    for cut in 20..packed.len() - 9 {
        let (_, result) = drain(&packed[..cut]);
        assert!(
            matches!(
                result,
                Err(ReadError::Truncated { .. } | ReadError::NotACapture { .. }) | Ok(())
            ),
            "{result:?}"
        );
    }
    let mut wrong = packed.clone();
    let checksum_at = packed.len() - 6;
    wrong[checksum_at] ^= 1;
    assert!(matches!(
        drain(&wrong),
        (5, Err(ReadError::Gzip { packet: 8, .. }))
    ));
}

#[test]
fn each_corruption_has_its_error() {
    let message = |bytes: &[u8]| drain(bytes).1.unwrap_err().to_string();
    assert_eq!(
        message(b""),
        "not a pcap or pcapng capture: begins with nothing; convert it with editcap -F pcapng"
    );
    assert_eq!(
        message(b"hello"),
        "not a pcap or pcapng capture: begins with 68 65 6c 6c; convert it with editcap -F pcapng"
    );

    let mut file = pcap(Order::Little);
    file.u32(1).u32(2).u32(0x0004_0001).u32(60);
    let at = file.bytes.len() - 16;
    assert!(
        matches!(drain(&file.bytes), (3, Err(ReadError::PacketTooLong { offset, packet: 4, len: 0x40001 })) if offset == at as u64)
    );

    let ng = |corruption: &dyn Fn(&mut CaptureBuilder)| {
        let mut file = CaptureBuilder::new(Order::Big);
        file.section().interface(1, 0, |b| {
            b.option_u64(14, (-5_i64) as u64);
        });
        file.enhanced(0, 5_000_000, 1, &[1]);
        corruption(&mut file);
        let (packets, result) = drain(&file.bytes);
        assert_eq!(packets, 1);
        result.unwrap_err()
    };
    assert!(matches!(
        ng(&|f| {
            f.enhanced(1, 0, 1, &[1]);
        }),
        ReadError::UnknownInterface {
            interface: 1,
            known: 1,
            packet: 2,
            ..
        }
    ));
    assert!(matches!(
        ng(&|f| {
            f.enhanced(0, 4_999_999, 1, &[1]);
        }),
        ReadError::Time {
            ticks: 4_999_999,
            ..
        }
    ));
    assert!(matches!(
        ng(&|f| {
            f.u32(6).u32(0x8000_0000);
            f.raw(&[0; 100]);
        }),
        ReadError::BlockTooLong {
            kind: 6,
            len: 0x8000_0000,
            ..
        }
    ));
    assert!(matches!(
        ng(&|f| {
            f.u32(0xbad).u32(13).raw(&[0; 100]);
        }),
        ReadError::BlockLength {
            kind: 0xbad,
            len: 13,
            ..
        }
    ));
    assert!(matches!(
        ng(&|f| {
            f.u32(0xbad).u32(0xffff_fffc).raw(&[0; 100]);
        }),
        ReadError::Truncated { .. }
    ));
    assert!(matches!(
        ng(&|f| {
            f.u32(0xbad).u32(16).u32(0).u32(17);
        }),
        ReadError::BlockTrailer {
            len: 16,
            trailer: 17,
            ..
        }
    ));
    assert!(matches!(
        ng(&|f| {
            f.block(6, |b| {
                b.u32(0).u32(0).u32(5_000_000).u32(9).u32(9).raw(&[0; 8]);
            });
        }),
        ReadError::BlockLength {
            kind: 6,
            len: 40,
            ..
        }
    ));
    assert!(matches!(
        ng(&|f| {
            f.block(0x0a0d_0d0a, |b| {
                b.u32(0x1234_5678).u32(0).u64(0);
            });
        }),
        ReadError::ByteOrder {
            magic: 0x1234_5678,
            ..
        }
    ));
    assert!(matches!(
        ng(&|f| {
            f.block(0x0a0d_0d0a, |b| {
                b.u32(0x1a2b_3c4d).u16(2).u16(0).u64(0);
            });
        }),
        ReadError::Version {
            major: 2,
            minor: 0,
            ..
        }
    ));
}

#[test]
fn interfaces_have_a_limit() {
    let mut file = CaptureBuilder::new(Order::Little);
    file.section();
    for _ in 0..=65_536 {
        file.interface(1, 0, |_| {});
    }
    assert!(matches!(
        drain(&file.bytes).1,
        Err(ReadError::TooManyInterfaces { .. })
    ));
}

#[test]
fn corrupted_files_never_panic_the_reader() {
    let mut random = Random::new(test_seed());
    let files = valid_files();
    let (mut whole, mut packets) = (0, 0);
    let files_read = Share::reported().of(100_000);
    for _ in 0..files_read {
        let mut file = files[random.index(files.len())].clone();
        for _ in 0..=random.index(3) {
            let at = random.index(file.len());
            match random.index(5) {
                0 => file[at] ^= 1 << random.index(8),
                1 => file[at] = [0, 0xff, 0x7f, 0x80][random.index(4)],
                2 => {
                    let from = random.index(file.len());
                    let len = random.index(file.len() - at.max(from)).min(32);
                    file.copy_within(from..from + len, at);
                }
                3 => file.truncate(at.max(1)),
                _ => file.insert(at, random.index(256) as u8),
            }
        }
        let (n, result) = drain(&file);
        packets += n;
        whole += u64::from(result.is_ok());
    }
    println!("{packets} packets, {whole} files read to the end");
    assert!(
        packets > files_read && whole > files_read / 100,
        "most corruption is late or harmless"
    );
}

proptest! {
    #![proptest_config(fairpath_units::property!(2_000))]

    #[test]
    fn any_bytes_behind_any_magic_never_panic_reader(
        magic in prop::sample::select(vec![0xa1b2_c3d4_u32, 0xd4c3_b2a1, 0x4d3c_b2a1, 0x34cd_b2a1, 0x0a0d_0d0a, 0x1f8b_0800]),
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let file = [&magic.to_be_bytes()[..], &bytes].concat();
        let _ = drain(&file);
    }
}
