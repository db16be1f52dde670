//! Which BBR this kernel has: asked of the kernel, not guessed from its number.
//!
//! ```text
//! a socket that chooses "bbr" ── TCP_CC_INFO ── length, and from version 2 on a byte with the version
//! type information (BTF)      ── struct bbr  ── inflight_hi: version 2 or newer
//! ```
//!
//! The socket's answer is the algorithm's own statement. The type information is read in addition, and
//! alone if this user cannot select BBR. If the two disagree, the version is unknown, and both answers
//! are reported.

use std::fmt;
use std::fs;
use std::io;

use fairpath_bpf::probe::{KernelStruct, congestion_info, kernel_struct};
use serde::{Deserialize, Serialize};

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
/// The kernel's name of it, and of its module.
const BBR: &str = "bbr";
const MODULE: &str = "tcp_bbr";
/// Of `struct tcp_bbr_info` in version 1: five words.
const V1_BYTES: usize = 20;
/// Where later ones have the byte `bbr_version` ("MUST be at this offset").
const VERSION_AT: usize = 39;
/// A member of `struct bbr` that came with version 2.
const LATER: &str = "inflight_hi";

/// The BBR of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "bbr", content = "detail")]
pub enum KernelBbr {
    /// No congestion control of this name.
    None,
    /// Measured.
    Version {
        /// 1, 2 or 3.
        version: u8,
        /// The evidence, as a clause.
        because: String,
    },
    /// There is one, of unknown version.
    Unknown {
        /// Why not, as a clause.
        because: String,
    },
}

impl fmt::Display for KernelBbr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelBbr::None => write!(out, "bbr: none (no congestion control of this name)"),
            KernelBbr::Version { version, because } => {
                write!(out, "bbr: version {version} ({because})")
            }
            KernelBbr::Unknown { because } => write!(out, "bbr: version unknown because {because}"),
        }
    }
}

/// The answers of the kernel; errors as sentences.
#[derive(Clone, Debug)]
struct Answers {
    /// Congestion controls that are loaded.
    available: Vec<String>,
    /// `TCP_CC_INFO` of a socket that chose BBR; `None`: there is no such control.
    info: Result<Option<Vec<u8>>, String>,
    /// `struct bbr`; `None`: the type information has none.
    structure: Result<Option<KernelStruct>, String>,
}

/// Which BBR this kernel has. Opens a socket and sends nothing; loads the module, if there is one and
/// the caller may.
pub fn kernel_bbr() -> KernelBbr {
    let info = match congestion_info(BBR) {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("choose {BBR} for a socket: {error}")),
    };
    let structure = kernel_struct(BBR, MODULE)
        .map_err(|error| format!("read the kernel's type information: {error}"));
    judge(&Answers {
        available: available().unwrap_or_default(),
        info,
        structure,
    })
}

/// Names of the congestion controls that are loaded, in the kernel's order.
///
/// # Errors
/// `/proc` cannot be read.
pub fn available() -> io::Result<Vec<String>> {
    let names = fs::read_to_string(AVAILABLE)?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}

fn judge(answers: &Answers) -> KernelBbr {
    let reported = match &answers.info {
        Ok(Some(info)) => reported(info),
        Ok(None) if !answers.available.iter().any(|name| name == BBR) => return KernelBbr::None,
        Ok(None) => Err(format!("{BBR} is listed, but no socket finds it")),
        Err(error) => Err(error.clone()),
    };
    let seen = match &answers.structure {
        Ok(Some(structure)) => Ok(structure.has(LATER)),
        Ok(None) => Err("the type information has no struct bbr".to_owned()),
        Err(error) => Err(error.clone()),
    };
    match (reported, seen) {
        (Ok((version, because)), Ok(later)) if (version >= 2) == later => {
            let member = if later { "has" } else { "has no" };
            let because = format!("{because}; struct bbr {member} {LATER}");
            KernelBbr::Version { version, because }
        }
        (Ok((version, because)), Ok(later)) => {
            let member = if later { "has" } else { "has no" };
            let because = format!(
                "a socket reports version {version} ({because}), but struct bbr {member} {LATER}"
            );
            KernelBbr::Unknown { because }
        }
        (Ok((version, because)), Err(unseen)) => {
            let because = format!("{because}; not read in addition: {unseen}");
            KernelBbr::Version { version, because }
        }
        (Err(missing), Ok(false)) => KernelBbr::Version {
            version: 1,
            because: format!("struct bbr has no {LATER}; no socket was queried: {missing}"),
        },
        (Err(missing), Ok(true)) => KernelBbr::Unknown {
            because: format!("struct bbr has {LATER} (version 2 or 3), and {missing}"),
        },
        (Err(missing), Err(unseen)) => KernelBbr::Unknown {
            because: format!("{missing}, and {unseen}"),
        },
    }
}

/// The version in a socket's answer, with the reason.
fn reported(info: &[u8]) -> Result<(u8, String), String> {
    let bytes = info.len();
    match info.get(VERSION_AT) {
        Some(version @ 2..=3) => Ok((
            *version,
            format!("a socket reports {bytes} bytes, and its version"),
        )),
        Some(version) => Err(format!(
            "a socket reports {bytes} bytes with version {version}, which this program does not support"
        )),
        None if bytes == V1_BYTES => Ok((
            1,
            format!("a socket reports {bytes} bytes, as version 1 does"),
        )),
        None => Err(format!(
            "a socket reports {bytes} bytes, unlike every version that this program supports"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(info: Option<Vec<u8>>, members: &[&str]) -> Answers {
        Answers {
            available: vec!["reno".to_owned(), BBR.to_owned()],
            info: Ok(info),
            structure: Ok(Some(KernelStruct {
                bytes: 104,
                members: members.iter().map(|m| (*m).to_owned()).collect(),
            })),
        }
    }

    /// As kernels with version 3 report it: 52 bytes, the version at 39.
    fn later(version: u8) -> Option<Vec<u8>> {
        let mut info = vec![0; 52];
        info[VERSION_AT] = version;
        Some(info)
    }

    fn version(judged: &KernelBbr) -> Option<u8> {
        match judged {
            KernelBbr::Version { version, .. } => Some(*version),
            _ => None,
        }
    }

    #[test]
    fn both_answers_together_identify_the_version() {
        let one = judge(&answers(Some(vec![0; 20]), &["min_rtt_us", "lt_bw"]));
        assert_eq!(version(&one), Some(1));
        assert_eq!(
            one.to_string(),
            "bbr: version 1 (a socket reports 20 bytes, as version 1 does; struct bbr has no inflight_hi)"
        );
        let three = judge(&answers(later(3), &["min_rtt_us", "inflight_hi"]));
        assert_eq!(version(&three), Some(3), "{three}");
    }

    #[test]
    fn answers_that_disagree_report_none() {
        for wrong in [
            answers(later(3), &["lt_bw"]),
            answers(Some(vec![0; 20]), &["inflight_hi"]),
        ] {
            let judged = judge(&wrong);
            assert!(matches!(judged, KernelBbr::Unknown { .. }), "{judged}");
            assert!(judged.to_string().contains("inflight_hi"), "{judged}");
        }
        for strange in [vec![0; 24], vec![9; 52]] {
            let judged = judge(&answers(Some(strange), &["inflight_hi"]));
            assert!(matches!(judged, KernelBbr::Unknown { .. }), "{judged}");
        }
    }

    #[test]
    fn a_socket_replaces_missing_type_information() {
        let mut half = answers(later(3), &[]);
        half.structure = Err("read the kernel's type information: no such file".to_owned());
        let judged = judge(&half);
        assert_eq!(version(&judged), Some(3));
        assert!(judged.to_string().contains("no such file"), "{judged}");
    }

    #[test]
    fn unprivileged_users_get_type_information() {
        let mut half = answers(None, &["lt_bw"]);
        half.info = Err("choose bbr for a socket: not permitted".to_owned());
        assert_eq!(version(&judge(&half)), Some(1));
        half.structure = Ok(None);
        let judged = judge(&half);
        let text = judged.to_string();
        assert!(matches!(judged, KernelBbr::Unknown { .. }), "{text}");
        assert!(
            text.contains("not permitted") && text.contains("struct bbr"),
            "{text}"
        );
    }

    #[test]
    fn kernels_without_support_report_none() {
        let mut none = answers(None, &[]);
        none.available = vec!["reno".to_owned(), "cubic".to_owned()];
        none.structure = Ok(None);
        assert_eq!(judge(&none), KernelBbr::None);
    }

    /// Whatever runs this: the sentence and the list of names agree.
    #[test]
    fn this_kernel_is_reported_as_it_lists_itself() {
        let reported = kernel_bbr();
        let listed = available().unwrap().iter().any(|name| name == BBR);
        assert_eq!(listed, reported != KernelBbr::None, "{reported}");
    }
}
