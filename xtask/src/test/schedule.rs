//! Parallel jobs, up to the capacity of the machine.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Something to run that takes some of the room.
#[derive(Clone, Debug)]
pub struct Job<T> {
    pub name: String,
    pub width: usize,
    /// The expected time; the longest begins first.
    pub cost: f64,
    pub what: T,
}

/// The interval at which `idle` is called while nothing ends.
const IDLE: Duration = Duration::from_secs(30);

/// Runs every job, at most `capacity` wide in total; `ended` gets each result when it comes, on this thread.
///
/// A job that is wider than that runs when nothing else does. `idle` gets the names of those that run.
pub fn all<T: Sync, R: Send>(
    mut jobs: Vec<Job<T>>,
    capacity: usize,
    run: impl Fn(&Job<T>) -> R + Sync,
    mut ended: impl FnMut(&Job<T>, R),
    mut idle: impl FnMut(&[&str]),
) {
    jobs.sort_by(|a, b| b.cost.total_cmp(&a.cost));
    let (sender, results) = mpsc::channel();
    let mut waiting: Vec<usize> = (0..jobs.len()).collect();
    let mut running: Vec<usize> = Vec::new();
    let width = |index: &usize| jobs[*index].width.min(capacity);
    thread::scope(|scope| {
        while !(waiting.is_empty() && running.is_empty()) {
            let used: usize = running.iter().map(width).sum();
            if let Some(next) = waiting.iter().position(|job| used + width(job) <= capacity) {
                let index = waiting.remove(next);
                running.push(index);
                let (sender, run, job) = (sender.clone(), &run, &jobs[index]);
                scope.spawn(move || {
                    let result = run(job);
                    // The receiver outlives the scope.
                    let _ = sender.send((index, result));
                });
                continue;
            }
            match results.recv_timeout(IDLE) {
                Ok((index, result)) => {
                    running.retain(|running| *running != index);
                    ended(&jobs[index], result);
                }
                Err(_) => {
                    let names: Vec<&str> = running.iter().map(|i| jobs[*i].name.as_str()).collect();
                    idle(&names);
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn job(name: &str, width: usize, cost: f64) -> Job<()> {
        Job {
            name: name.to_owned(),
            width,
            cost,
            what: (),
        }
    }

    /// The order in which jobs began, and the maximum width.
    fn trial(jobs: Vec<Job<()>>, capacity: usize) -> (Vec<String>, usize) {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let began = std::sync::Mutex::new(Vec::new());
        let mut ends = 0;
        let number = jobs.len();
        all(
            jobs,
            capacity,
            |job| {
                let width = job.width.min(capacity);
                let used = now.fetch_add(width, Ordering::SeqCst) + width;
                most.fetch_max(used, Ordering::SeqCst);
                began.lock().unwrap().push(job.name.clone());
                thread::yield_now();
                now.fetch_sub(width, Ordering::SeqCst);
            },
            |_, ()| ends += 1,
            |_| {},
        );
        assert_eq!(ends, number);
        (began.into_inner().unwrap(), most.load(Ordering::SeqCst))
    }

    #[test]
    fn parallel_jobs_stay_within_the_capacity() {
        for capacity in [1, 2, 6] {
            let jobs = (0..50).map(|i| job(&i.to_string(), i % 4 + 1, i as f64));
            let (began, most) = trial(jobs.collect(), capacity);
            assert_eq!(began.len(), 50);
            assert!(most <= capacity, "{most} of {capacity}");
        }
    }

    #[test]
    fn longest_begins_first_and_wide_one_runs_alone() {
        let jobs = vec![
            job("short", 1, 1.0),
            job("wide", 9, 5.0),
            job("long", 1, 9.0),
        ];
        let (began, most) = trial(jobs, 1);
        assert_eq!(began, ["long", "wide", "short"]);
        assert_eq!(most, 1);
    }

    #[test]
    fn nothing_to_do_ends_at_once() {
        assert_eq!(trial(Vec::new(), 2), (Vec::new(), 0));
    }
}
