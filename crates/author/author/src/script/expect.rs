//! The verbs that check order, times, drops, marks, sojourn times and ranks. A failure ends the case.

use std::rc::Rc;

use fairpath_core::sched::{Drop, NEVER};
use mlua::{Table, Value};

use super::packet::{Packet, item_of, number, packet_of, shown};
use super::report::FailureKind;
use super::session::{Halt, Item, Session, State, Tag};
use super::verbs::{Verbs, tag};

/// An expected packet: an enqueued item, or any item of a packet, optionally with a tag.
enum Wanted {
    Item(Rc<Item>),
    Packet(Rc<Packet>, Option<Tag>),
}

impl Wanted {
    fn new(value: &Value, tag_value: &Value) -> Result<Wanted, Halt> {
        if let Some(item) = item_of(value) {
            return Ok(Wanted::Item(item));
        }
        let packet = packet_of(value).ok_or_else(|| {
            Halt::usage(format!(
                "expected a packet or a result of enqueue, not {}",
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
        NEVER => "no packet: the scheduler is empty".into(),
        again => format!("no packet before {again} ns"),
    }
}

impl Session {
    fn count_check(&mut self, result: Result<(), Halt>) -> Result<(), Halt> {
        self.bed.checks += u64::from(result.is_ok());
        result
    }

    /// Dequeues and requires this packet.
    fn leaves_next(&mut self, wanted: &Wanted, what: &str) -> Result<Rc<Item>, Halt> {
        let (sent, again) = self.dequeue(1, 0)?;
        let state = || match wanted {
            Wanted::Item(item) if item.state.get() != State::Waiting => {
                format!(" (it is {})", item.state.get())
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
                format!("{}{}", wanted.name(), state()),
                item.to_string(),
            )),
            None => Err(Halt::expected(
                what,
                format!("{}{}", wanted.name(), state()),
                nothing(again),
            )),
        }
    }

    /// Advances to the next time at which a packet leaves.
    fn advance_to_next(&mut self) -> Result<Option<Rc<Item>>, Halt> {
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
                    "no packet leaves at {now} ns, and the scheduler returns {again} as the next time"
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
            let item = session.leaves_next(&wanted, "unexpected packet")?;
            Ok(super::packet::LuaItem(item))
        },
    )?;
    verbs.add("expect_order", |session, _, packets: Table| {
        let count = packets.raw_len();
        for position in 1..=count {
            let value: Value = packets
                .raw_get(position)
                .map_err(|error| Halt::usage(error.to_string()))?;
            let wanted = Wanted::new(&value, &Value::Nil)?;
            session.leaves_next(&wanted, &format!("position {position} of {count}"))?;
        }
        Ok(())
    })?;
    verbs.add("expect_empty", |session, _, ()| {
        let (sent, again) = session.dequeue(1, 0)?;
        let waiting = session.waiting_packets();
        let result = match sent.first() {
            Some(item) => Err(Halt::expected(
                "the scheduler is not empty",
                "no packet",
                item.to_string(),
            )),
            None if again != NEVER || waiting > 0 => {
                let got = format!("{waiting} waiting, {}", nothing(again));
                Err(Halt::expected(
                    "the scheduler is not empty",
                    "no packet",
                    got,
                ))
            }
            None => Ok(()),
        };
        session.count_check(result)
    })?;
    verbs.add("expect_waiting", |session, _, count: Value| {
        let count = number(&count, "packets", 0, u64::MAX)?;
        let waiting = session.waiting_packets() as u64;
        let result = equal("packets waiting", count, waiting);
        session.count_check(result)
    })
}

fn equal(what: &str, wanted: u64, got: u64) -> Result<(), Halt> {
    between(what, (wanted, wanted), got)
}

fn between(what: &str, (min, max): (u64, u64), got: u64) -> Result<(), Halt> {
    if (min..=max).contains(&got) {
        return Ok(());
    }
    let wanted = match (min, max) {
        (min, max) if min == max => min.to_string(),
        (min, u64::MAX) => format!("at least {min}"),
        (min, max) => format!("{min} to {max}"),
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
        let result = match (sent.first(), until) {
            (Some(item), _) => Err(Halt::expected(
                "a packet leaves",
                "no packet",
                item.to_string(),
            )),
            (None, Some(until)) if again != until => Err(Halt::expected(
                "next time of the scheduler",
                nothing(until),
                nothing(again),
            )),
            _ => Ok(()),
        };
        session.count_check(result)
    })?;
    for (name, exactly) in [("expect_sent_at", true), ("expect_sent_after", false)] {
        verbs.add(
            name,
            move |session, _, (packet, at, tag): (Value, Value, Value)| {
                let wanted = Wanted::new(&packet, &tag)?;
                let at = number(&at, "time", 0, u64::MAX)?;
                let Some(item) = session.advance_to_next()? else {
                    return Err(Halt::expected(
                        "no packet leaves",
                        wanted.name(),
                        nothing(NEVER),
                    ));
                };
                if !wanted.is(&item) {
                    let got = format!("{item} at {} ns", session.bed.now);
                    return Err(Halt::expected("unexpected packet", wanted.name(), got));
                }
                let max = if exactly { at } else { u64::MAX };
                let result = between(
                    &format!("{item} leaves at an unexpected time (ns)"),
                    (at, max),
                    session.bed.now,
                );
                session.count_check(result)
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
                "expected a reason as a string, not {}",
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
        "drop reason \"{name}\" does not exist: write one of {}",
        names.join(", ")
    )))
}

fn drops(verbs: &Verbs<'_>) -> mlua::Result<()> {
    verbs.add(
        "expect_drops",
        |session, _, (count, why): (Value, Value)| {
            let count = number(&count, "packets", 0, u64::MAX)?;
            let dropped = &session.bed.counts.dropped;
            let result = match reason(&why)? {
                Some(reason) => {
                    let got = dropped.get(&reason).copied().unwrap_or(0);
                    equal(&format!("packets dropped: {}", reason.name()), count, got)
                }
                None => equal("packets dropped", count, dropped.values().sum()),
            };
            session.count_check(result)
        },
    )?;
    verbs.add(
        "expect_dropped",
        |session, _, (item, why): (Value, Value)| {
            let (item, reason) = (the_item(&item)?, reason(&why)?);
            let result = match (item.state.get(), reason) {
                (State::Dropped(_), None) => Ok(()),
                (State::Dropped(got), Some(wanted)) if got == wanted => Ok(()),
                (state, wanted) => {
                    let wanted = wanted.map_or("dropped".to_owned(), |wanted| {
                        State::Dropped(wanted).to_string()
                    });
                    Err(Halt::expected(
                        format!("outcome of {item}"),
                        wanted,
                        state.to_string(),
                    ))
                }
            };
            session.count_check(result)
        },
    )
}

fn the_item(value: &Value) -> Result<Rc<Item>, Halt> {
    item_of(value).ok_or_else(|| {
        Halt::usage(format!(
            "expected a result of enqueue or dequeue, not {}",
            shown(value)
        ))
    })
}

fn sent(item: &Item) -> Result<(), Halt> {
    match item.state.get() {
        State::Sent => Ok(()),
        state => Err(Halt::expected(
            format!("outcome of {item}"),
            "sent",
            state.to_string(),
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
            let result = match item.marked.get() == wanted {
                true => Ok(()),
                false => Err(Halt::expected(
                    format!("mark of {item}"),
                    words(wanted),
                    words(!wanted),
                )),
            };
            session.count_check(result)
        },
    )?;
    verbs.add(
        "expect_sojourn",
        |session, _, (item, min, max): (Value, Value, Value)| {
            let item = the_item(&item)?;
            sent(&item)?;
            let min = number(&min, "sojourn", 0, u64::MAX)?;
            let max = if max.is_nil() {
                min
            } else {
                number(&max, "sojourn", min, u64::MAX)?
            };
            let result = between(
                &format!("sojourn time of {item} (ns)"),
                (min, max),
                item.sojourn.get(),
            );
            session.count_check(result)
        },
    )?;
    verbs.add("expect_rank", |session, _, (item, rank): (Value, Value)| {
        let item = the_item(&item)?;
        let rank = number(&rank, "rank", 0, u64::MAX)?;
        let result = equal(&format!("rank of {item}"), rank, item.rank.get());
        session.count_check(result)
    })
}

fn values(verbs: &Verbs<'_>) -> mlua::Result<()> {
    verbs.add(
        "expect",
        |session, _, (value, message): (Value, Option<String>)| {
            let result = match value {
                Value::Nil | Value::Boolean(false) => {
                    let message = message.unwrap_or_else(|| "the value is false or nil".into());
                    Err(Halt::new(FailureKind::Expectation, message))
                }
                _ => Ok(()),
            };
            session.count_check(result)
        },
    )?;
    verbs.add(
        "expect_equal",
        |session, _, (got, wanted, what): (Value, Value, Option<String>)| {
            let what = what.unwrap_or_else(|| "the value".into());
            let same = got
                .equals(&wanted)
                .map_err(|error| Halt::usage(error.to_string()))?;
            let result = if same {
                Ok(())
            } else {
                Err(Halt::expected(what, shown(&wanted), shown(&got)))
            };
            session.count_check(result)
        },
    )?;
    verbs.add(
        "expect_between",
        |session, _, args: (f64, f64, f64, Option<String>)| {
            let (got, min, max, what) = args;
            let what = what.unwrap_or_else(|| "the value".into());
            let result = match (min..=max).contains(&got) {
                true => Ok(()),
                false => Err(Halt::expected(
                    what,
                    format!("{min} to {max}"),
                    got.to_string(),
                )),
            };
            session.count_check(result)
        },
    )?;
    verbs.add(
        "fail",
        |_, _, args: (Option<String>, Option<String>, Option<String>)| -> Result<(), Halt> {
            let (message, expected, got) = args;
            let message = message.unwrap_or_else(|| "the script called fail".into());

            Err(Halt {
                expected,
                got,
                ..Halt::new(FailureKind::Expectation, message)
            })
        },
    )
}
