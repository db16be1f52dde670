//! Targets as actions, and changes of the packet as last tests.

use fairpath_core::rules::{MSS_OF_PATH, action, test};

use super::rule::Encoder;
use crate::packet::Unknown;
use crate::spec::Kind;
use crate::tree::{ChainId, Group, Rule, Target, Value};

impl Encoder<'_> {
    /// The action of a rule. A change of the packet becomes the last test.
    pub(super) fn target(&mut self, rule: &Rule) -> u32 {
        let chain = |id: ChainId| {
            let listed = self.chains.get(id.0 as usize).copied();
            listed.unwrap_or(self.chain_base + id.0) << 8
        };
        match rule.target {
            Target::None | Target::Continue => action::NONE,
            Target::Accept => action::ACCEPT,
            Target::Drop => action::DROP,
            Target::Return => action::RETURN,
            Target::Queue => action::QUEUE,
            Target::Jump(id) => action::JUMP | chain(id),
            Target::Goto(id) => action::GOTO | chain(id),
            Target::Extension(kind) => self.target_extension(kind, rule.target_options()),
        }
    }

    fn change(&mut self, kind: u8, small: usize, a: u32, b: u64) -> u32 {
        self.test(kind, 0, small, a, b, &[]);
        action::TARGET
    }

    fn target_extension(&mut self, kind: Kind, options: Group) -> u32 {
        let pair = |name| options.pair(name).map(|(a, b, _)| (a, u64::from(b)));
        let unknown = |reason: Unknown| action::UNKNOWN | (reason as u32) << 8;
        match kind {
            Kind::TargetReject => {
                let (answer, _) = options.number("--reject-with").unwrap_or((3, false));
                action::REJECT | (answer as u32) << 8
            }
            Kind::TargetMark => match pair("--set-xmark") {
                Some((value, mask)) => self.change(test::SET_MARK, 0, value, mask),
                None => unknown(Unknown::OpaqueTarget),
            },
            Kind::TargetConnmark if options.shifts_mark() => unknown(Unknown::OpaqueTarget),
            Kind::TargetConnmark => {
                if let Some((value, mask)) = pair("--set-xmark") {
                    return self.change(test::SET_CONNMARK, 0, value, mask);
                }
                let mask = |name| options.number(name).map_or(u64::from(u32::MAX), |(m, _)| m);
                let masks = mask("--nfmask") | mask("--ctmask") << 32;
                let kind = if options.has("--save-mark") {
                    test::SAVE_CONNMARK
                } else {
                    test::RESTORE_CONNMARK
                };
                self.change(kind, 0, 0, masks)
            }
            Kind::TargetClassify => match pair("--set-class") {
                Some((major, minor)) => {
                    self.change(test::SET_PRIORITY, 0, major << 16 | minor as u32, 0)
                }
                None => unknown(Unknown::OpaqueTarget),
            },
            Kind::TargetTos => match pair("--set-tos") {
                Some((value, mask)) => self.change(test::SET_TOS, 0, value, mask),
                None => unknown(Unknown::OpaqueTarget),
            },
            Kind::TargetDscp => match options.number("--set-dscp") {
                Some((dscp, _)) => self.change(test::SET_DSCP, 0, dscp as u32, 0),
                None => unknown(Unknown::OpaqueTarget),
            },
            Kind::TargetTtl | Kind::TargetHl => {
                for item in options.items {
                    let how = match &item.name()[item.name().len() - 3..] {
                        "set" => 0,
                        "dec" => 1,
                        _ => 2,
                    };
                    if let Value::Number(ttl) = item.value {
                        return self.change(test::SET_TTL, how, ttl as u32, 0);
                    }
                }
                unknown(Unknown::OpaqueTarget)
            }
            Kind::TargetTcpmss => {
                let mss = options.number("--set-mss");
                let mss = mss.map_or(MSS_OF_PATH, |(mss, _)| mss as u32);
                self.change(test::SET_MSS, 0, mss, 0)
            }
            Kind::TargetNotrack => self.change(test::SET_UNTRACKED, 0, 0, 0),
            Kind::TargetCt if options.has("--notrack") => self.change(test::SET_UNTRACKED, 0, 0, 0),
            Kind::TargetCt => {
                let slot = self.slot(0);
                self.change(test::SET_TEMPLATE, 0, slot, 0)
            }
            Kind::TargetLog | Kind::TargetNflog | Kind::TargetTrace => {
                self.change(test::SET_LOGGED, 0, 0, 0)
            }
            Kind::BridgeMarkTarget => self.bridge_mark(options),
            Kind::TargetNfqueue => action::QUEUE,
            Kind::TargetDnat
            | Kind::TargetSnat
            | Kind::TargetMasquerade
            | Kind::TargetRedirect
            | Kind::TargetNetmap => unknown(Unknown::Translation),
            _ => unknown(Unknown::OpaqueTarget),
        }
    }
}
