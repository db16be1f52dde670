//! The points of a packet's path at which Fairpath can evaluate a match or a target: exactly,
//! elsewhere, or not at all. One table for `check`, the guide and the loader.

use crate::canonical::permits_target;
use crate::spec::{Kind, SPECS};
use crate::tree::{Chain, Family, Group, Hook, Policy, Rule, Target};

/// A point at which a program can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Point {
    /// The driver, before the stack.
    Xdp,
    /// Traffic control at ingress.
    TcxIngress,
    /// Traffic control at egress.
    TcxEgress,
    /// The hooks of netfilter, where iptables runs.
    Netfilter,
}

impl Point {
    /// All points, in the order of a received packet.
    pub const ALL: [Point; 4] = [
        Point::Xdp,
        Point::TcxIngress,
        Point::Netfilter,
        Point::TcxEgress,
    ];

    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            Point::Xdp => "xdp",
            Point::TcxIngress => "tcx ingress",
            Point::TcxEgress => "tcx egress",
            Point::Netfilter => "netfilter",
        }
    }
}

/// The answer of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The same as iptables.
    Exact,
    /// At another point, with the reason.
    Elsewhere(Point, &'static str),
    /// Not at all, with the reason.
    Refused(&'static str),
}

impl Answer {
    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            Answer::Exact => "exact",
            Answer::Elsewhere(..) => "elsewhere",
            Answer::Refused(_) => "refused",
        }
    }

    /// The reason, if the answer is not exact.
    pub fn reason(self) -> Option<String> {
        match self {
            Answer::Exact => None,
            Answer::Elsewhere(point, why) => Some(format!("{why}; at {}", point.name())),
            Answer::Refused(why) => Some(why.to_owned()),
        }
    }

    /// The first one of those that are farthest from exact.
    fn worse(self, other: Answer) -> Answer {
        if other.rank() > self.rank() {
            other
        } else {
            self
        }
    }

    fn rank(self) -> u8 {
        match self {
            Answer::Exact => 0,
            Answer::Elsewhere(..) => 1,
            Answer::Refused(_) => 2,
        }
    }
}

const CONNECTION: &str = "the connection is known after conntrack only";
const NO_OUTPUT: &str = "the output interface is not known before routing";
const NO_SOCKET: &str = "the socket is known to netfilter only";
const WRITES: &str = "packets and their marks change behind POSTROUTING only";
const WRITES_CONNECTION: &str =
    "connections get marks behind POSTROUTING only, by rules with -p tcp or -p udp";
const AT_EGRESS: &str = "in table mangle, at tcx egress of the output interface";
const LIMIT_AT_EGRESS: &str = "in table mangle, the limit is carried out at tcx egress";
const BRIDGE_PORT: &str = "ports of a bridge are known to the bridge only";
const ROUTE: &str = "the type of an address needs the kernel's routes";
const NOT_KNOWN: &str = "Fairpath does not support this extension";
const TYPE_OF_ROUTE: &str = "the programs at the hooks of netfilter know the type of the destination in INPUT of IPv4 only, without --limit-iface-in";
const NOT_THERE: &str = "the programs at the hooks of netfilter do not read it yet";
const NO_OWNER: &str = "iptables has owner in OUTPUT and POSTROUTING only";
const NO_SENDER: &str = "iptables has mac in PREROUTING, INPUT and FORWARD only";
const EFFECT: &str =
    "an evaluation with another effect than counters, or by chance, is left to the hook";
const NO_FILTER: &str = "iptables has rpfilter in PREROUTING only";
const NO_FRAMES: &str = "netfilter programs run for IPv4 and IPv6 only";
const OF_BRIDGES: &str =
    "arptables has FORWARD for frames of bridges only, which the programs at tcx do not evaluate";
const OF_FILTER: &str = "the programs at tcx evaluate table filter of ebtables only: nat and broute act before the bridge decides, load them with ebtables-restore and these rules with --skip-table";
const NO_STP: &str = "ebtables does not find the spanning tree of a bridge in what it sends";
const NO_LOGS: &str = "logs of frames are not printed";
const NOT_PERMITTED: &str = "iptables permits the target at the other hooks only";
const NOT_IN_ARP: &str = "arptables permits the target at the other hooks only";
const TRANSLATION: &str = "address translation stays with the kernel";

/// True if its evaluation has an effect, or depends on chance: early drop leaves such packets to the hook.
pub fn has_effect(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Limit
            | Kind::Hashlimit
            | Kind::Quota
            | Kind::Recent
            | Kind::Statistic
            | Kind::TargetLog
            | Kind::TargetNflog
    )
}

/// True for a target that changes a packet, its mark or its priority.
fn changes_packet(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::TargetMark
            | Kind::TargetDscp
            | Kind::TargetTos
            | Kind::TargetTtl
            | Kind::TargetHl
            | Kind::TargetTcpmss
            | Kind::TargetClassify
            | Kind::BridgeMarkTarget
    )
}

/// The answer at tcx egress for the target of a rule, if it is one that changes packets.
pub fn change_answer(rule: &Rule) -> Option<Answer> {
    let Target::Extension(kind) = rule.target else {
        return None;
    };
    let options = rule.target_options();
    match kind {
        Kind::TargetConnmark if options.has("--restore-mark") || has_port(rule) => {
            Some(Answer::Exact)
        }
        kind => changes_packet(kind).then(|| answer(kind, Point::TcxEgress)),
    }
}

/// True if only packets of TCP or of UDP match: programs find their connections to change them.
fn has_port(rule: &Rule) -> bool {
    const FOUND: [u64; 2] = [6, 17];
    let mut protocols = rule.matches().filter_map(|group| match group.kind {
        Kind::Ip => group.number("-p"),
        _ => None,
    });
    protocols.any(|(protocol, not)| !not && FOUND.contains(&protocol))
}

/// The answer for a match or a target at a point.
pub fn answer(kind: Kind, point: Point) -> Answer {
    use Answer::{Elsewhere, Exact, Refused};
    let netfilter = point == Point::Netfilter;
    match kind {
        Kind::Opaque | Kind::OpaqueTarget => Refused(NOT_KNOWN),
        // Behind the hooks, a packet has its connection and its socket.
        Kind::State | Kind::Conntrack | Kind::Connmark
            if netfilter || point == Point::TcxEgress =>
        {
            Exact
        }
        Kind::State | Kind::Conntrack | Kind::Connmark => Elsewhere(Point::Netfilter, CONNECTION),
        Kind::Connlimit => Refused("counts of connections are not kept"),
        Kind::Addrtype if netfilter => Refused(TYPE_OF_ROUTE),
        Kind::Rpfilter if netfilter => Refused(NOT_THERE),
        Kind::Owner if point == Point::TcxEgress => Exact,
        Kind::Owner if !netfilter => Elsewhere(Point::Netfilter, NO_SOCKET),
        Kind::Physdev => Refused(BRIDGE_PORT),
        Kind::Addrtype | Kind::Rpfilter if point == Point::Xdp => {
            Elsewhere(Point::Netfilter, ROUTE)
        }
        Kind::Mark if point == Point::Xdp => {
            Elsewhere(Point::TcxIngress, "a packet has no mark in the driver")
        }
        kind if changes_packet(kind) => match point {
            Point::TcxIngress | Point::TcxEgress => Exact,
            _ => Elsewhere(Point::TcxEgress, WRITES),
        },
        Kind::TargetConnmark if netfilter || point == Point::TcxEgress => {
            Refused(WRITES_CONNECTION)
        }
        Kind::TargetConnmark => Refused(CONNECTION),
        kind if point == Point::Xdp && has_effect(kind) => Elsewhere(Point::Netfilter, EFFECT),
        Kind::TargetReject if point == Point::Xdp => {
            Elsewhere(Point::Netfilter, "answers need the stack")
        }
        Kind::TargetNotrack | Kind::TargetCt => Refused("conntrack stays with the kernel"),
        Kind::TargetDnat
        | Kind::TargetSnat
        | Kind::TargetMasquerade
        | Kind::TargetRedirect
        | Kind::TargetNetmap
        | Kind::TargetTproxy => Refused(TRANSLATION),
        Kind::TargetNfqueue => Refused("user space decides about these packets"),
        Kind::TargetSet => Refused("sets are changed by the loader only"),
        Kind::ArpMangle
        | Kind::BridgeArpreply
        | Kind::BridgeDnat
        | Kind::BridgeSnat
        | Kind::BridgeRedirect => Refused("frames are not rewritten"),
        Kind::BridgeHeader | Kind::ArpHeader if netfilter => {
            Elsewhere(Point::TcxIngress, NO_FRAMES)
        }
        Kind::Mac if point == Point::TcxEgress => {
            Refused("the sender's link-layer address is replaced")
        }
        _ => Exact,
    }
}

/// The answer of `fairpath rules load` for a match or a target at a hook of netfilter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookAnswer {
    /// The programs evaluate it as iptables does.
    Exact,
    /// The same, by a program elsewhere.
    Moved(&'static str),
    /// Its table is left to iptables with `--defer`, else the load is refused, with the reason.
    Deferred(&'static str),
    /// Not at all, with the reason.
    Refused(&'static str),
}

impl HookAnswer {
    /// One word.
    pub fn word(&self) -> &'static str {
        match self {
            HookAnswer::Exact => "exact",
            HookAnswer::Moved(_) => "moved",
            HookAnswer::Deferred(_) => "deferred",
            HookAnswer::Refused(_) => "refused",
        }
    }

    /// The reason, if the answer is not exact.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            HookAnswer::Exact => None,
            HookAnswer::Moved(why) | HookAnswer::Deferred(why) | HookAnswer::Refused(why) => {
                Some(why)
            }
        }
    }
}

/// The hooks of netfilter, in the order of [`hook_answers`].
pub const HOOKS: [Hook; 5] = [
    Hook::Prerouting,
    Hook::Input,
    Hook::Forward,
    Hook::Output,
    Hook::Postrouting,
];

/// The answer for a match or a target at a hook.
pub fn hook_answer(kind: Kind, family: Family, hook: Hook) -> HookAnswer {
    let spec = kind.spec();
    if !spec.is_in(Family::Ipv4) && !spec.is_in(Family::Ipv6) {
        return HookAnswer::Refused(NO_FRAMES);
    }
    if let Answer::Refused(why) = place_answer(kind, &[hook]) {
        return HookAnswer::Refused(why);
    }
    if kind.is_target() && !permits_target(kind, hook) {
        return HookAnswer::Refused(NOT_PERMITTED);
    }
    if hook == Hook::Postrouting && (changes_packet(kind) || kind == Kind::TargetConnmark) {
        return HookAnswer::Moved(AT_EGRESS);
    }
    if hook == Hook::Forward && kind == Kind::TargetTcpmss {
        return HookAnswer::Moved(LIMIT_AT_EGRESS);
    }
    if kind == Kind::Addrtype && has_types(family, &[hook]) {
        return HookAnswer::Exact;
    }
    match answer(kind, Point::Netfilter) {
        Answer::Exact => HookAnswer::Exact,
        Answer::Elsewhere(_, why) | Answer::Refused(why) => HookAnswer::Deferred(why),
    }
}

/// True if the packet's route has the type of its destination at all of these hooks.
fn has_types(family: Family, hooks: &[Hook]) -> bool {
    family == Family::Ipv4 && hooks.iter().all(|hook| *hook == Hook::Input)
}

/// The answer for a match, where that depends on its options, the family and the hooks.
fn match_answer(group: &Group, family: Family, hooks: &[Hook], point: Point) -> Answer {
    let of_destination = group.kind == Kind::Addrtype
        && ["--src-type", "--limit-iface-in", "--limit-iface-out"]
            .iter()
            .all(|name| !group.has(name));
    match of_destination && point == Point::Netfilter && has_types(family, hooks) {
        true => Answer::Exact,
        false => answer(group.kind, point),
    }
}

/// The answers for the output interface and the hooks of a rule, for its matches and its target.
pub fn rule_answer(rule: &Rule, family: Family, hooks: &[Hook], point: Point) -> Answer {
    let target = match rule.target {
        Target::Extension(kind) => answer(kind, point),
        Target::Queue => Answer::Refused("user space decides about these packets"),
        _ => Answer::Exact,
    };
    matches_answer(rule, family, hooks, point).worse(target)
}

/// The same without the target.
pub fn matches_answer(rule: &Rule, family: Family, hooks: &[Hook], point: Point) -> Answer {
    let mut worst = Answer::Exact;
    let mut add = |answer: Answer| worst = worst.worse(answer);
    for group in rule.matches() {
        add(match_answer(&group, family, hooks, point));
        add(place_answer(group.kind, hooks));
        if group.kind == Kind::Ip {
            add(header_answer(group, hooks.first().copied(), point));
        }
    }
    worst
}

/// The hooks of arptables.
const ARP_HOOKS: [Hook; 3] = [Hook::Input, Hook::Output, Hook::Forward];

/// The answer of `fairpath rules load` for a match or a target of arptables at a hook: INPUT is at tcx
/// ingress, OUTPUT at tcx egress.
fn arp_kind_answer(kind: Kind, hook: Hook) -> Answer {
    match (hook, kind) {
        (Hook::Input, Kind::TargetClassify) => Answer::Refused(NOT_IN_ARP),
        (Hook::Input, _) => answer(kind, Point::TcxIngress),
        (Hook::Output, _) => answer(kind, Point::TcxEgress),
        _ => Answer::Refused(OF_BRIDGES),
    }
}

/// The answer of `fairpath rules load` for a match or a target of ebtables in table filter.
fn bridge_kind_answer(kind: Kind) -> Answer {
    match kind {
        Kind::BridgeLog | Kind::BridgeNflog => Answer::Refused(NO_LOGS),
        // INPUT is at tcx ingress, FORWARD and OUTPUT at tcx egress: both have the same answers.
        kind => answer(kind, Point::TcxIngress),
    }
}

/// The answer for a rule of arptables or ebtables in a chain of these hooks.
pub fn frame_answer(family: Family, table: &str, rule: &Rule, hooks: &[Hook]) -> Answer {
    if is_elsewhere(family, table) {
        return Answer::Refused(OF_FILTER);
    }
    let is_sent = family == Family::Bridge && hooks.contains(&Hook::Output);
    if is_sent && rule.matches().any(|group| group.kind == Kind::Stp) {
        return Answer::Refused(NO_STP);
    }
    let point = match hooks {
        [Hook::Output] => Point::TcxEgress,
        _ => Point::TcxIngress,
    };
    let kinds = rule.matches().map(|group| group.kind);
    let kinds = kinds.chain(match rule.target {
        Target::Extension(kind) => Some(kind),
        // Without options, it is exact at each hook that has it.
        _ if family == Family::Arp => Some(Kind::ArpHeader),
        _ => None,
    });
    let at_hooks = kinds.flat_map(|kind| {
        hooks.iter().map(move |hook| match family {
            Family::Bridge => bridge_kind_answer(kind),
            _ => arp_kind_answer(kind, *hook),
        })
    });
    let all = at_hooks.chain([rule_answer(rule, family, hooks, point)]);
    all.max_by_key(|answer| answer.rank())
        .unwrap_or(Answer::Exact)
}

/// The reason if a chain of arptables or ebtables is refused for its policy.
pub fn frame_chain_reason(family: Family, table: &str, chain: &Chain) -> Option<&'static str> {
    if chain.policy != Policy::Drop {
        return None;
    }
    match family {
        Family::Arp => (chain.hook == Some(Hook::Forward)).then_some(OF_BRIDGES),
        _ => is_elsewhere(family, table).then_some(OF_FILTER),
    }
}

/// True for tables of ebtables that are not evaluated.
fn is_elsewhere(family: Family, table: &str) -> bool {
    family == Family::Bridge && table != "filter"
}

/// Matches that iptables refuses in some chains, because the fact is not there.
fn place_answer(kind: Kind, hooks: &[Hook]) -> Answer {
    let sends = |hook: &Hook| matches!(hook, Hook::Output | Hook::Postrouting);
    match kind {
        Kind::Owner if !hooks.iter().all(sends) => Answer::Refused(NO_OWNER),
        Kind::Mac if hooks.iter().any(sends) => Answer::Refused(NO_SENDER),
        Kind::Rpfilter if hooks.iter().any(|hook| *hook != Hook::Prerouting) => {
            Answer::Refused(NO_FILTER)
        }
        _ => Answer::Exact,
    }
}

/// True if the answer for a match at the hooks of netfilter depends on those that reach its chain.
pub fn depends_on_hooks(kind: Kind, family: Family) -> bool {
    let at = |hook| {
        let has_types = kind == Kind::Addrtype && has_types(family, &[hook]);
        (place_answer(kind, &[hook]), has_types)
    };
    HOOKS.iter().any(|hook| at(*hook) != at(HOOKS[0]))
}

fn header_answer(group: Group, hook: Option<Hook>, point: Point) -> Answer {
    let early = matches!(point, Point::Xdp | Point::TcxIngress);
    if group.has("-o") && early {
        let at = if hook == Some(Hook::Postrouting) {
            Point::TcxEgress
        } else {
            Point::Netfilter
        };
        return Answer::Elsewhere(at, NO_OUTPUT);
    }
    if group.has("-i") && point == Point::Xdp {
        let virtual_name = |name: &[u8]| {
            name.contains(&b'.') || name.starts_with(b"br") || name.starts_with(b"bond")
        };
        if group.text("-i").is_some_and(virtual_name) {
            return Answer::Elsewhere(
                Point::TcxIngress,
                "the driver receives on the lower interface",
            );
        }
    }
    Answer::Exact
}

/// A match or a target.
pub struct AnswerRow {
    /// As a rule has it.
    pub name: String,
    /// `None`: the answers are those of all families that have it.
    pub family: Option<Family>,
    /// Those of [`Point::ALL`].
    pub points: [Answer; Point::ALL.len()],
    /// Those of [`HOOKS`].
    pub hooks: [HookAnswer; HOOKS.len()],
}

/// All matches and targets. Those of which the answers depend on the family have a row for each.
pub fn answers() -> impl Iterator<Item = AnswerRow> {
    let specs = SPECS.iter().filter(|spec| !spec.name.is_empty());
    specs.flat_map(|spec| {
        let hooks = |family| HOOKS.map(|hook| hook_answer(spec.kind, family, hook));
        let row = |family: Option<Family>| AnswerRow {
            name: if spec.kind.is_target() {
                format!("-j {}", spec.name)
            } else if spec.is_in(Family::Bridge) && !spec.is_in(Family::Ipv4) {
                spec.name.to_owned()
            } else {
                format!("-m {}", spec.name)
            },
            family,
            points: Point::ALL.map(|point| answer(spec.kind, point)),
            hooks: hooks(family.unwrap_or(Family::Ipv4)),
        };
        match hooks(Family::Ipv4) == hooks(Family::Ipv6) {
            true => vec![row(None)],
            false => vec![row(Some(Family::Ipv4)), row(Some(Family::Ipv6))],
        }
    })
}

/// The tables of all matches and targets as Markdown, for the guide.
pub fn markdown() -> String {
    let mut out = String::from("| match or target |");
    for hook in HOOKS {
        out.push_str(&format!(" {} |", hook.chain()));
    }
    out.push_str(" reason |\n|---|---|---|---|---|---|---|\n");
    for AnswerRow {
        name,
        family,
        hooks,
        ..
    } in answers()
    {
        let words = hooks.iter().map(HookAnswer::word);
        let reasons = hooks.iter().filter_map(HookAnswer::reason);
        add_row(&mut out, &name, family, words, reasons.map(str::to_owned));
    }
    out.push_str("\n| match or target |");
    for point in Point::ALL {
        out.push_str(&format!(" {} |", point.name()));
    }
    out.push_str(" reason |\n|---|---|---|---|---|---|\n");
    // The answers of points are the same for both families.
    let rows = answers().filter(|row| row.family != Some(Family::Ipv6));
    for AnswerRow { name, points, .. } in rows {
        let words = points.iter().map(|answer| answer.word());
        let reasons = points.iter().filter_map(|answer| answer.reason());
        add_row(&mut out, &name, None, words, reasons);
    }
    out.push_str("\n| target of arptables |");
    for hook in ARP_HOOKS {
        out.push_str(&format!(" {} |", hook.chain()));
    }
    out.push_str(" reason |\n|---|---|---|---|---|\n");
    let specs = SPECS.iter().filter(|spec| spec.is_in(Family::Arp));
    for spec in specs.filter(|spec| !spec.name.is_empty()) {
        let answers = ARP_HOOKS.map(|hook| arp_kind_answer(spec.kind, hook));
        let words = answers.iter().map(|answer| answer.word());
        let reasons = answers.iter().filter_map(|answer| answer.reason());
        add_row(&mut out, &format!("-j {}", spec.name), None, words, reasons);
    }
    out.push_str("\n| match or target of ebtables | in table filter | reason |\n|---|---|---|\n");
    let specs = SPECS.iter().filter(|spec| spec.is_in(Family::Bridge));
    for spec in specs.filter(|spec| !spec.name.is_empty()) {
        let answer = bridge_kind_answer(spec.kind);
        let name = match spec.kind.is_target() {
            true => format!("-j {}", spec.name),
            false => spec.name.to_owned(),
        };
        let reason = answer.reason().unwrap_or_default();
        out.push_str(&format!("| `{name}` | {} | {reason} |\n", answer.word()));
    }
    out
}

fn add_row(
    out: &mut String,
    name: &str,
    family: Option<Family>,
    words: impl Iterator<Item = &'static str>,
    all: impl Iterator<Item = String>,
) {
    let family = match family {
        Some(family) => format!(" ({family})"),
        None if name.starts_with('-') => String::new(),
        None => " (bridge)".to_owned(),
    };
    out.push_str(&format!("| `{name}`{family} |"));
    for word in words {
        out.push_str(&format!(" {word} |"));
    }
    let mut reasons: Vec<String> = Vec::new();
    for reason in all {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    out.push_str(&format!(" {} |\n", reasons.join("; ")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_whose_answers_depend_on_hooks() {
        let of = |family| -> Vec<Kind> {
            let kinds = SPECS.iter().map(|spec| spec.kind);
            kinds
                .filter(|kind| depends_on_hooks(*kind, family))
                .collect()
        };
        let mut expected = vec![Kind::Mac, Kind::Owner, Kind::Rpfilter];
        expected.sort_unstable();
        assert_eq!(of(Family::Ipv6), expected);
        expected.push(Kind::Addrtype);
        expected.sort_unstable();
        assert_eq!(of(Family::Ipv4), expected);
    }
}
