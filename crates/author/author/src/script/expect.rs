//! The verbs that expect: order, times, drops, marks, sojourn, ranks. What does not hold ends the case.

use std::rc::Rc;

use fairpath_core::sched::{Drop, NEVER};
use mlua::{Table, Value};

use super::packet::{Packet, item_of, number, packet_of, shown};
use super::report::FailureKind;
use super::session::{Fate, Halt, Item, Session};
use super::verbs::{Verbs, tag};

/// Whom a script expects: one that it enqueued, or any of a packet (with a tag, that one).
enum Wanted {
    Item(Rc<Item>),
    Packet(Rc<Packet>, Option<String>),
}

impl Wanted {
    fn new(value: &Value, tag_value: &Value) -> Result<Wanted, Halt> {
        if let Some(item) = item_of(value) {
            return Ok(Wanted::Item(item));
        }
        let packet = packet_of(value).ok_or_else(|| {
            Halt::usage(format!(
                "a packet is wanted (or what enqueue gave), not {}",
                shown(value)
            ))
        })?;
        Ok(Wanted::Packet(packet, tag(tag_value)?))
    }

    fn is(&self, item: &Rc<Item>) -> bool {
        match self {
            Wanted::Item(wanted) => Rc::ptr_eq(wanted, item),
            Wanted::Packet(packet, tag) => {
                Rc::ptr_eq(packet, &item.packet) && tag.as_ref().is_none_or(|tag| *tag == item.tag)
            }
        }
    }

    fn name(&self) -> String {
        match self {
            Wanted::Item(item) => item.to_string(),
            Wanted::Packet(packet, Some(tag)) => format!("{}#{tag}", packet.label),
            Wanted::Packet(packet, None) => packet.label.clone(),
        }
    }
}

fn nothing(again: u64) -> String {
    match again {
        NEVER => "nothing: the scheduler is empty".into(),
        again => format!("nothing before {again} ns"),
    }
}

impl Session {
    fn holds(&mut self, held: Result<(), Halt>) -> Result<(), Halt> {
        self.bed.checks += u64::from(held.is_ok());
        held
    }

    /// Dequeues, and has this packet.
    fn leaves_next(&mut self, wanted: &Wanted, what: &str) -> Result<Rc<Item>, Halt> {
        let (sent, again) = self.dequeue(1, 0)?;
        let fate = || match wanted {
            Wanted::Item(item) if item.fate.get() != Fate::Waiting => {
                format!(" (it is {})", item.fate.get())
            }
            _ => String::new(),
        };
        match sent.into_iter().next() {
            Some(item) if wanted.is(&item) => {
                self.bed.checks += 1;
                Ok(item)
            }
            Some(item) => Err(Halt::expected(
                what,
                format!("{}{}", wanted.name(), fate()),
                item.to_string(),
            )),
            None => Err(Halt::expected(
                what,
                format!("{}{}", wanted.name(), fate()),
                nothing(again),
            )),
        }
    }

    /// Goes to the next time at which something may leave.
    fn go_to_next(&mut self) -> Result<Option<Rc<Item>>, Halt> {
        loop {
            let (sent, again) = self.dequeue(1, 0)?;
            if let Some(item) = sent.into_iter().next() {
                return Ok(Some(item));
            }
            if again == NEVER {
                return Ok(None);
            }
            if again <= self.bed.now {
                let now = self.bed.now;
                let text = format!(
                    "nothing may leave at {now} ns, and the scheduler says to ask again at {again}"
                );
                return Err(Halt::new(FailureKind::Broken, text));
            }
            self.bed.now = again;
        }
    }
}

pub(super) fn install(verbs: &Verbs<'_>) -> mlua::Result<()> {
    order(verbs)?;
    times(verbs)?;
    drops(verbs)?;
    items(verbs)?;
    values(verbs)
}

fn order(verbs: &Verbs<'_>) -> mlua::Result<()> {
    verbs.add(
        "dequeue_cmp",
        |session, _, (packet, tag): (Value, Value)| {
            let wanted = Wanted::new(&packet, &tag)?;
            let item = session.leaves_next(&wanted, "another packet leaves")?;
            Ok(super::packet::LuaItem(item))
        },
    )?;
    verbs.add("expect_order", |session, _, packets: Table| {
        let count = packets.raw_len();
        for place in 1..=count {
            let value: Value = packets
                .raw_get(place)
                .map_err(|error| Halt::usage(error.to_string()))?;
            let wanted = Wanted::new(&value, &Value::Nil)?;
            session.leaves_next(&wanted, &format!("place {place} of {count}"))?;
        }
        Ok(())
    })?;
    verbs.add("expect_empty", |session, _, ()| {
        let (sent, again) = session.dequeue(1, 0)?;
        let waiting = session.waiting_packets();
        let held = match sent.first() {
            Some(item) => Err(Halt::expected(
                "the scheduler is not empty",
                "nothing",
                item.to_string(),
            )),
            None if again != NEVER || waiting > 0 => {
                let got = format!("{waiting} waiting, {}", nothing(again));
                Err(Halt::expected("the scheduler is not empty", "nothing", got))
            }
            None => Ok(()),
        };
        session.holds(held)
    })?;
    verbs.add("expect_waiting", |session, _, count: Value| {
        let count = number(&count, "packets", 0, u64::MAX)?;
        let waiting = session.waiting_packets() as u64;
        let held = equal("packets waiting", count, waiting);
        session.holds(held)
    })
}

fn equal(what: &str, wanted: u64, got: u64) -> Result<(), Halt> {
    between(what, (wanted, wanted), got)
}

fn between(what: &str, (least, most): (u64, u64), got: u64) -> Result<(), Halt> {
    if (least..=most).contains(&got) {
        return Ok(());
    }
    let wanted = match (least, most) {
        (least, most) if least == most => least.to_string(),
        (least, u64::MAX) => format!("{least} or more"),
        (least, most) => format!("{least} to {most}"),
    };
    Err(Halt::expected(what, wanted, got.to_string()))
}

fn times(verbs: &Verbs<'_>) -> mlua::Result<()> {
    verbs.add("expect_nothing", |session, _, until: Value| {
        let until = match until {
            Value::Nil => None,
            until => Some(number(&until, "until", 0, u64::MAX)?),
        };
        let (sent, again) = session.dequeue(1, 0)?;
        let held = match (sent.first(), until) {
            (Some(item), _) => Err(Halt::expected(
                "a packet leaves",
                "nothing",
                item.to_string(),
            )),
            (None, Some(until)) if again != until => Err(Halt::expected(
                "when to ask again",
                nothing(until),
                nothing(again),
            )),
            _ => Ok(()),
        };
        session.holds(held)
    })?;
    for (name, exactly) in [("expect_sent_at", true), ("expect_sent_after", false)] {
        verbs.add(
            name,
            move |session, _, (packet, at, tag): (Value, Value, Value)| {
                let wanted = Wanted::new(&packet, &tag)?;
                let at = number(&at, "time", 0, u64::MAX)?;
                let Some(item) = session.go_to_next()? else {
                    return Err(Halt::expected(
                        "nothing leaves",
                        wanted.name(),
                        nothing(NEVER),
                    ));
                };
                if !wanted.is(&item) {
                    let got = format!("{item} at {} ns", session.bed.now);
                    return Err(Halt::expected("another packet leaves", wanted.name(), got));
                }
                let most = if exactly { at } else { u64::MAX };
                let held = between(
                    &format!("{item} leaves at another time (ns)"),
                    (at, most),
                    session.bed.now,
                );
                session.holds(held)
            },
        )?;
    }
    Ok(())
}

fn reason(value: &Value) -> Result<Option<Drop>, Halt> {
    let name = match value {
        Value::Nil => return Ok(None),
        Value::String(name) => name.to_string_lossy(),
        other => {
            return Err(Halt::usage(format!(
                "a reason is a text, not {}",
                shown(other)
            )));
        }
    };
    let all = Drop::ALL.iter();
    if let Some(drop) = all.clone().find(|drop| drop.name() == name) {
        return Ok(Some(*drop));
    }
    let names: Vec<&str> = all.map(|drop| drop.name()).collect();
    Err(Halt::usage(format!(
        "packets are not dropped for \"{name}\"; there are {}",
        names.join(", ")
    )))
}

fn drops(verbs: &Verbs<'_>) -> mlua::Result<()> {
    verbs.add(
        "expect_drops",
        |session, _, (count, why): (Value, Value)| {
            let count = number(&count, "packets", 0, u64::MAX)?;
            let dropped = &session.bed.counts.dropped;
            let held = match reason(&why)? {
                Some(reason) => {
                    let got = dropped.get(&reason).copied().unwrap_or(0);
                    equal(&format!("packets dropped: {}", reason.name()), count, got)
                }
                None => equal("packets dropped", count, dropped.values().sum()),
            };
            session.holds(held)
        },
    )?;
    verbs.add(
        "expect_dropped",
        |session, _, (item, why): (Value, Value)| {
            let (item, reason) = (the_item(&item)?, reason(&why)?);
            let held = match (item.fate.get(), reason) {
                (Fate::Dropped(_), None) => Ok(()),
                (Fate::Dropped(got), Some(wanted)) if got == wanted => Ok(()),
                (fate, wanted) => {
                    let wanted = wanted.map_or("dropped".to_owned(), |wanted| {
                        Fate::Dropped(wanted).to_string()
                    });
                    Err(Halt::expected(
                        format!("what became of {item}"),
                        wanted,
                        fate.to_string(),
                    ))
                }
            };
            session.holds(held)
        },
    )
}

fn the_item(value: &Value) -> Result<Rc<Item>, Halt> {
    item_of(value).ok_or_else(|| {
        Halt::usage(format!(
            "what enqueue or dequeue gave is wanted, not {}",
            shown(value)
        ))
    })
}

fn sent(item: &Item) -> Result<(), Halt> {
    match item.fate.get() {
        Fate::Sent => Ok(()),
        fate => Err(Halt::expected(
            format!("what became of {item}"),
            "sent",
            fate.to_string(),
        )),
    }
}

fn items(verbs: &Verbs<'_>) -> mlua::Result<()> {
    verbs.add(
        "expect_marked",
        |session, _, (item, wanted): (Value, Option<bool>)| {
            let (item, wanted) = (the_item(&item)?, wanted.unwrap_or(true));
            sent(&item)?;
            let words = |marked| if marked { "CE set" } else { "CE not set" };
            let held = match item.marked.get() == wanted {
                true => Ok(()),
                false => Err(Halt::expected(
                    format!("the mark of {item}"),
                    words(wanted),
                    words(!wanted),
                )),
            };
            session.holds(held)
        },
    )?;
    verbs.add(
        "expect_sojourn",
        |session, _, (item, least, most): (Value, Value, Value)| {
            let item = the_item(&item)?;
            sent(&item)?;
            let least = number(&least, "sojourn", 0, u64::MAX)?;
            let most = if most.is_nil() {
                least
            } else {
                number(&most, "sojourn", least, u64::MAX)?
            };
            let held = between(
                &format!("ns that {item} waited"),
                (least, most),
                item.sojourn.get(),
            );
            session.holds(held)
        },
    )?;
    verbs.add("expect_rank", |session, _, (item, rank): (Value, Value)| {
        let item = the_item(&item)?;
        let rank = number(&rank, "rank", 0, u64::MAX)?;
        let held = equal(&format!("rank of {item}"), rank, item.rank.get());
        session.holds(held)
    })
}

fn values(verbs: &Verbs<'_>) -> mlua::Result<()> {
    verbs.add(
        "expect",
        |session, _, (truth, message): (Value, Option<String>)| {
            let held = match truth {
                Value::Nil | Value::Boolean(false) => {
                    let message = message.unwrap_or_else(|| "it does not hold".into());
                    Err(Halt::new(FailureKind::Expectation, message))
                }
                _ => Ok(()),
            };
            session.holds(held)
        },
    )?;
    verbs.add(
        "expect_equal",
        |session, _, (got, wanted, what): (Value, Value, Option<String>)| {
            let what = what.unwrap_or_else(|| "the value".into());
            let same = got
                .equals(&wanted)
                .map_err(|error| Halt::usage(error.to_string()))?;
            let held = if same {
                Ok(())
            } else {
                Err(Halt::expected(what, shown(&wanted), shown(&got)))
            };
            session.holds(held)
        },
    )?;
    verbs.add(
        "expect_between",
        |session, _, args: (f64, f64, f64, Option<String>)| {
            let (got, least, most, what) = args;
            let what = what.unwrap_or_else(|| "the value".into());
            let held = match (least..=most).contains(&got) {
                true => Ok(()),
                false => Err(Halt::expected(
                    what,
                    format!("{least} to {most}"),
                    got.to_string(),
                )),
            };
            session.holds(held)
        },
    )?;
    verbs.add(
        "fail",
        |_, _, args: (Option<String>, Option<String>, Option<String>)| -> Result<(), Halt> {
            let (message, expected, got) = args;
            let message = message.unwrap_or_else(|| "the script says so".into());
            Err(Halt {
                expected,
                got,
                ..Halt::new(FailureKind::Expectation, message)
            })
        },
    )
}
