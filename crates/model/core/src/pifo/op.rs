//! Operations on a pool as values: every runtime runs the same log, and the results are compared.

/// One operation and, after its run, its result (`struct fp_pool_op`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Op {
    pub(crate) code: u32,
    /// The PIFO.
    pub q: u32,
    /// The item.
    pub item: u32,
    /// Result: 0 or a refusal of pushes, removes and moves; the item, or 0, of pops and peeks.
    pub answer: u32,
    /// The rank.
    pub rank: u64,
    /// Now, or the eligible time of the item.
    pub time: u64,
    /// Result: for pushes the item that was pushed out, for pops and peeks the rank, for
    /// [`Op::pieo_next`] the time.
    pub extra: u64,
}

impl Op {
    fn of(code: u32, q: u32, item: u32, rank: u64, time: u64) -> Op {
        Op {
            code,
            q,
            item,
            rank,
            time,
            ..Op::default()
        }
    }

    /// [`super::Pool::push`].
    pub fn push(q: u32, item: u32, rank: u64) -> Op {
        Op::of(1, q, item, rank, 0)
    }

    /// [`super::Pool::pop`].
    pub fn pop(q: u32) -> Op {
        Op::of(2, q, 0, 0, 0)
    }

    /// [`super::Pool::peek`].
    pub fn peek(q: u32) -> Op {
        Op::of(3, q, 0, 0, 0)
    }

    /// [`super::Pool::last`].
    pub fn last(q: u32) -> Op {
        Op::of(4, q, 0, 0, 0)
    }

    /// [`super::Pool::remove`].
    pub fn remove(item: u32) -> Op {
        Op::of(5, 0, item, 0, 0)
    }

    /// [`super::Pool::move_to`].
    pub fn move_to(item: u32, rank: u64) -> Op {
        Op::of(6, 0, item, rank, 0)
    }

    /// [`super::Pool::pieo_push`].
    pub fn pieo_push(q: u32, item: u32, eligible: u64, rank: u64) -> Op {
        Op::of(7, q, item, rank, eligible)
    }

    /// [`super::Pool::pieo_pop`].
    pub fn pieo_pop(q: u32, now: u64) -> Op {
        Op::of(8, q, 0, 0, now)
    }

    /// [`super::Pool::pieo_next_event`].
    pub fn pieo_next(q: u32) -> Op {
        Op::of(9, q, 0, 0, 0)
    }

    /// The operation in one or two words.
    pub fn name(&self) -> &'static str {
        match self.code {
            1 => "push",
            2 => "pop",
            3 => "peek",
            4 => "last",
            5 => "remove",
            6 => "move",
            7 => "pieo push",
            8 => "pieo pop",
            9 => "pieo next",
            _ => "nothing",
        }
    }

    /// The operation without its result.
    #[must_use]
    pub fn question(self) -> Op {
        Op {
            answer: 0,
            extra: 0,
            ..self
        }
    }
}
