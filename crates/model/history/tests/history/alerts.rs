//! Begin, end and delay of alerts, and the rate of false alerts.

use fairpath_core::{DOWN, INSIDE, OUTSIDE, UP};
use fairpath_history::history::{
    AlertRules, History, MAX_ALERTS_PER_INTERVAL, Meta, RowSpec, Settings, Sla, State, UNJUDGED_NS,
};
use fairpath_history::snapshot::{Alert, AlertKind, Kind, Query};

use crate::world::*;

/// Long enough for a baseline.
const WARM: u64 = 900;

/// A class with traffic described by a few numbers.
#[derive(Clone, Copy)]
struct Traffic {
    leg: usize,
    median_ms: f64,
    sigma: f64,
    samples: u64,
    loss: f64,
}

const CALM: Traffic = Traffic {
    leg: INSIDE,
    median_ms: 20.0,
    sigma: 0.2,
    samples: 20,
    loss: 0.0,
};

impl Traffic {
    fn second(&self, world: &mut World, slot: u32, dice: &mut Dice) {
        world.bytes(slot, DOWN, 300, 300_000);
        for _ in 0..self.samples {
            world.rtt(slot, self.leg, dice.rtt(self.median_ms, self.sigma));
        }
        let lost = (0..300).filter(|_| dice.share() < self.loss).count();
        world.data(slot, DOWN, 300, lost as u32, 0);
    }
}

struct Scene {
    world: World,
    history: History,
    dice: Dice,
}

impl Scene {
    fn new(rows: Vec<RowSpec>) -> Scene {
        let world = World::new(rows.len() + 1);
        let history = world.history(rows);
        Scene {
            world,
            history,
            dice: Dice(41),
        }
    }

    /// Class 1 has this traffic for the given time. Returns alerts with the second of each.
    fn run(&mut self, seconds: u64, traffic: Traffic) -> Vec<(u64, Alert)> {
        let mut alerts = Vec::new();
        for second in 1..=seconds {
            traffic.second(&mut self.world, 1, &mut self.dice);
            let reported = self.world.second(&mut self.history);
            alerts.extend(reported.into_iter().map(|alert| (second, alert)));
        }
        alerts
    }

    fn active_alerts(&self) -> Vec<AlertKind> {
        row(&self.history, "a").alerts
    }
}

#[test]
fn a_doubled_rtt_raises_one_alert() {
    let mut scene = Scene::new(vec![class("a", 1)]);
    assert!(scene.run(WARM, CALM).is_empty());
    let doubled = Traffic {
        median_ms: 40.0,
        ..CALM
    };
    let began = scene.run(1200, doubled);
    assert_eq!(began.len(), 1, "{began:?}");
    let (delay, alert) = &began[0];
    println!("a step from 20 to 40 ms is reported after {delay} s");
    assert!((15..=30).contains(delay), "{delay}");
    assert_eq!((alert.alert, alert.active), (AlertKind::RttShift, true));
    assert_eq!((alert.class.as_str(), alert.leg.as_str()), ("a", "inside"));
    let ns = |value: Option<u64>| value.unwrap() as f64;
    assert!(
        (ns(alert.baseline_rtt_ns) / 20e6 - 1.0).abs() < 0.03,
        "{alert:?}"
    );
    let limit = ns(alert.limit_rtt_ns) / ns(alert.baseline_rtt_ns);
    assert!(
        (limit - 1.5).abs() < 0.01,
        "the limit is the limit: {alert:?}"
    );
    assert!((ns(alert.rtt_ns) / 40e6 - 1.0).abs() < 0.15, "{alert:?}");
    assert_eq!(alert.statistic.as_deref(), Some("p50"), "{alert:?}");
    assert_eq!((alert.loss_ratio, alert.schema), (None, 1));
    let since = (alert.since_unix_ns - THEN) / SECOND;
    assert!((WARM..WARM + 12).contains(&since), "{since}");
    assert_eq!(scene.active_alerts(), [AlertKind::RttShift]);

    let ended = scene.run(600, CALM);
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert!(!ended[0].1.active && ended[0].0 <= 45, "{ended:?}");
    assert_eq!(ended[0].1.since_unix_ns, alert.since_unix_ns);
    assert!(scene.active_alerts().is_empty());
}

/// A gap without samples within the time that an alert needs: `since` is before it, and the text
/// reports it. After a long gap, `since` is after it: nothing is known of the time between.
#[test]
fn since_spans_short_gaps_and_no_long_ones() {
    let doubled = Traffic {
        median_ms: 40.0,
        ..CALM
    };
    for (gap, spanned) in [(0, true), (120, true), (700, false)] {
        let mut scene = Scene::new(vec![class("a", 1)]);
        assert!(scene.run(WARM, CALM).is_empty());
        assert!(scene.run(15, doubled).is_empty(), "before it is certain");
        for _ in 0..gap {
            assert_eq!(scene.world.second(&mut scene.history), []);
        }
        let began = scene.run(60, doubled);
        let [(delay, alert)] = &began[..] else {
            panic!("{gap}: {began:?}")
        };
        let since = (alert.since_unix_ns - THEN) / SECOND;
        let text = &alert.text;
        println!("gap of {gap} s: after {delay} s more, since {since}: {text}");
        let begins = if spanned { WARM } else { WARM + 15 + gap };
        assert!((begins..begins + 12).contains(&since), "{gap}: {since}");
        assert_eq!(text.contains("measured in "), spanned && gap > 0, "{text}");
        // A window that begins again may be too short to compare.
        let measured = |of: u64| text.ends_with(&format!("measured in 20 of {of} intervals"));
        assert!(gap != 120 || (140..144).any(measured), "{text}");
    }
}

#[test]
fn small_short_and_usual_steps_raise_no_alert() {
    let mut scene = Scene::new(vec![class("a", 1)]);
    scene.run(WARM, CALM);
    let by = |median_ms: f64| Traffic { median_ms, ..CALM };
    for traffic in [by(24.0), by(27.0)] {
        assert!(scene.run(300, traffic).is_empty());
    }
    // Ten seconds of a tenfold RTT, repeatedly.
    for _ in 0..20 {
        assert!(scene.run(9, by(200.0)).is_empty());
        assert!(scene.run(60, CALM).is_empty());
    }
    // Below the minimum difference: from 1 to 4 ms.
    let mut scene = Scene::new(vec![class("a", 1)]);
    scene.run(WARM, by(1.0));
    assert!(scene.run(300, by(4.0)).is_empty());
}

#[test]
fn a_baseline_does_not_move_during_an_alert() {
    let mut scene = Scene::new(vec![class("a", 1)]);
    scene.run(WARM, CALM);
    let tripled = Traffic {
        median_ms: 60.0,
        ..CALM
    };
    assert_eq!(scene.run(6 * 3600, tripled).len(), 1);
    let ended = scene.run(60, CALM);
    assert_eq!(ended.len(), 1);
    let baseline = ended[0].1.baseline_rtt_ns.unwrap() as f64;
    assert!((baseline / 20e6 - 1.0).abs() < 0.03, "{ended:?}");
}

#[test]
fn a_shift_becomes_the_baseline_after_a_day() {
    let mut scene = Scene::new(vec![class("a", 1)]);
    scene.run(WARM, CALM);
    let tripled = Traffic {
        median_ms: 60.0,
        samples: 6,
        ..CALM
    };
    let alerts = scene.run(25 * 3600, tripled);
    let reported: Vec<bool> = alerts.iter().map(|(_, alert)| alert.active).collect();
    assert_eq!(reported, [true, false]);
    assert!(alerts[1].0.abs_diff(24 * 3600) < 60, "{alerts:?}");
    assert!(alerts[1].1.text.contains("new baseline"), "{alerts:?}");
}

#[test]
fn the_outside_leg_needs_many_flows() {
    for (flows, expected) in [(4, 0), (100, 1)] {
        let mut scene = Scene::new(vec![class("a", 1)]);
        scene.world.counts[1].flows_opened = flows;
        let calm = Traffic {
            leg: OUTSIDE,
            ..CALM
        };
        scene.run(WARM, calm);
        let doubled = Traffic {
            median_ms: 50.0,
            ..calm
        };
        let alerts = scene.run(60, doubled);
        assert_eq!(alerts.len(), expected, "{flows} flows: {alerts:?}");
        assert!(alerts.iter().all(|(_, alert)| alert.leg == "outside"));
    }
}

#[test]
fn a_loss_alert_needs_statistical_confidence() {
    let mut scene = Scene::new(vec![class("a", 1)]);
    let lossy = |loss: f64| Traffic {
        loss,
        samples: 0,
        ..CALM
    };
    // Also without RTT samples. 1.8 % is below the threshold of 2 %, for three hours.
    assert!(scene.run(3 * 3600, lossy(0.018)).is_empty());
    let began = scene.run(120, lossy(0.04));
    assert_eq!(began.len(), 1, "{began:?}");
    let (delay, alert) = &began[0];
    println!("a loss of 4 % is reported after {delay} s");
    assert!((15..=60).contains(delay), "{delay}");
    assert_eq!(
        (alert.alert, alert.limit_loss_ratio),
        (AlertKind::Loss, Some(0.02))
    );
    let ratio = alert.loss_ratio.unwrap();
    assert!(ratio > 0.02 && ratio < 0.06 && alert.rtt_ns.is_none());
    // 1 % does not end the alert. Half of the threshold does.
    assert!(scene.run(300, lossy(0.015)).is_empty());
    assert_eq!(scene.run(60, lossy(0.0)).len(), 1);
    // 1 of 10 packets per second is lost, but a hundred packets per window are too few.
    let mut scene = Scene::new(vec![class("a", 1)]);
    for second in 0..600u32 {
        scene.world.data(1, UP, 9, u32::from(second % 2 == 0), 0);
        assert!(scene.world.second(&mut scene.history).is_empty());
    }
}

#[test]
fn service_levels_need_no_baseline() {
    let promised = RowSpec {
        sla: Sla {
            rtt_p95_ns: Some(40 * MS),
            loss: Some(0.005),
        },
        ..class("a", 1)
    };
    let mut scene = Scene::new(vec![promised]);
    assert!(scene.run(60, CALM).is_empty());
    let slow = Traffic {
        median_ms: 45.0,
        ..CALM
    };
    let began = scene.run(60, slow);
    assert_eq!(began.len(), 1, "{began:?}");
    let alert = &began[0].1;
    let limit = (alert.alert, alert.limit_rtt_ns, alert.baseline_rtt_ns);
    assert_eq!(limit, (AlertKind::SlaBreach, Some(40_000_000), None));
    assert!(
        alert.text.contains("service level 40.000 ms"),
        "{}",
        alert.text
    );
    let lossy = Traffic { loss: 0.02, ..CALM };
    // It continues for another reason.
    assert!(scene.run(120, lossy).is_empty());
    let ended = scene.run(60, CALM);
    assert_eq!(ended.len(), 1, "{ended:?}");
}

#[test]
fn the_general_service_level_applies_to_subscribers() {
    let own = |name: &str, slot: u32, ms: u64| RowSpec {
        sla: Sla {
            rtt_p95_ns: Some(ms * MS),
            loss: None,
        },
        ..class(name, slot)
    };
    let mut rows = vec![group("site")];
    rows.push(below(0, class("general", 1)));
    rows.push(below(0, own("lax", 2, 500)));
    rows.push(below(0, own("strict", 3, 60)));
    rows.push(RowSpec {
        kind: Kind::Interface,
        ..class("wan0", 4)
    });
    let mut scene = Scene::new(rows);
    scene.history.set_settings(Settings {
        alerts: AlertRules {
            rtt_p95_ns: Some(200 * MS),
            ..AlertRules::default()
        },
        ..Settings::default()
    });
    let mut began = |median_ms: f64| {
        let mut names = Vec::new();
        for _ in 0..60 {
            for slot in 1..=4 {
                let traffic = Traffic { median_ms, ..CALM };
                traffic.second(&mut scene.world, slot, &mut scene.dice);
            }
            let alerts = scene.world.second(&mut scene.history).into_iter();
            let breaches = alerts.filter(|alert| alert.alert == AlertKind::SlaBreach);
            names.extend(breaches.map(|alert| (alert.class, alert.limit_rtt_ns.unwrap())));
        }
        names
    };
    assert_eq!(began(40.0), []);
    assert_eq!(began(100.0), [("strict".to_owned(), 60 * MS)]);
    assert_eq!(began(300.0), [("general".to_owned(), 200 * MS)]);
}

/// A region with this number of sites, of this number of classes each, with a general service level.
fn slow_scene(sites: u32, classes: u32) -> Scene {
    let mut rows = vec![group("region")];
    for site in 0..sites {
        let at = rows.len();
        rows.push(below(0, group(&format!("site{site}"))));
        let slots = site * classes + 1..=(site + 1) * classes;
        rows.extend(slots.map(|slot| below(at, class(&format!("c{slot}"), slot))));
    }
    let mut scene = Scene::new(rows);
    scene.history.set_settings(Settings {
        alerts: AlertRules {
            rtt_p95_ns: Some(50 * MS),
            // Shifts are not of interest here.
            shift_floor_ns: 3600 * SECOND,
            ..AlertRules::default()
        },
        ..Settings::default()
    });
    scene
}

/// Each class measures once in one to four seconds. Those in `slow` have 90 ms, the others 20 ms.
fn slow_for(
    scene: &mut Scene,
    seconds: u64,
    slots: u32,
    slow: impl Fn(u32) -> bool,
) -> Vec<String> {
    let mut reported = Vec::new();
    for second in 1..=seconds {
        for slot in 1..=slots {
            if second % (1 + u64::from(slot % 4)) != 0 {
                continue;
            }
            let percent = if slow(slot) { MS * 9 / 10 } else { MS / 5 };
            for _ in 0..20 {
                let rtt = percent * (90 + scene.dice.below(20));
                scene.world.rtt(slot, INSIDE, rtt);
            }
        }
        for alert in scene.world.second(&mut scene.history) {
            assert_eq!(alert.alert, AlertKind::SlaBreach);
            let state = if alert.active { "begins" } else { "ends" };
            reported.push(format!("{} {state}", alert.class));
        }
    }
    reported
}

#[test]
fn breaches_of_a_site_are_one_alert() {
    let mut scene = slow_scene(3, 300);
    assert!(slow_for(&mut scene, 30, 900, |_| false).is_empty());
    let of_site = |slot: u32| slot <= 300;
    assert_eq!(slow_for(&mut scene, 150, 900, of_site), ["site0 begins"]);
    let alert = &snapshot_of(&scene.history).alerts[0];
    assert_eq!(alert.below, 300, "{alert:?}");
    let text = "classes exceed their service level, and 300 below";
    assert!(alert.text.ends_with(text), "{}", alert.text);
    let ended = slow_for(&mut scene, 220, 900, |_| false);
    assert_eq!(ended, ["site0 ends"]);
    // Scattered classes are reported each.
    let scattered = |slot: u32| slot % 100 == 7;
    assert_eq!(slow_for(&mut scene, 150, 900, scattered).len(), 9);
    assert_eq!(listed(&scene).len(), 9);
}

#[test]
fn breaches_of_all_sites_are_one_alert() {
    let mut scene = slow_scene(4, 20);
    assert_eq!(slow_for(&mut scene, 200, 80, |_| true), ["region begins"]);
    assert_eq!(listed(&scene), ["region 84"]);
    // Without a level, each ends at once.
    scene.history.set_settings(Settings::default());
    assert_eq!(slow_for(&mut scene, 1, 80, |_| true), ["region ends"]);
    assert!(slow_for(&mut scene, 100, 80, |_| true).is_empty());
}

/// Level off, kind off, and a class below: each ends the breach in the next interval.
#[test]
fn a_breach_ends_with_its_service_level() {
    let level = |ms: Option<u64>, kinds: &[Kind]| Settings {
        alerts: AlertRules {
            rtt_p95_ns: ms.map(|ms| ms * MS),
            kinds: kinds.to_vec(),
            ..AlertRules::default()
        },
        ..Settings::default()
    };
    let class_only = [Kind::Class];
    for case in ["level", "kind", "child"] {
        let mut scene = Scene::new(vec![class("a", 1)]);
        scene.history.set_settings(level(Some(15), &class_only));
        assert_eq!(scene.run(60, CALM).len(), 1);
        let counts = scene.world.counts.clone();
        let reason = match case {
            "level" => {
                scene.history.set_settings(level(None, &class_only));
                "no service level"
            }
            "kind" => {
                let interfaces = [Kind::Interface];
                scene.history.set_settings(level(Some(15), &interfaces));
                "rows of this kind"
            }
            _ => {
                let rows = vec![class("a", 1), below(0, class("b", 2))];
                let mut counts = counts;
                counts.resize(3, Default::default());
                scene.world.counts.clone_from(&counts);
                assert_eq!(scene.history.configure(rows, &counts).unwrap(), []);
                "classes below decide now"
            }
        };
        let ended = scene.run(1, CALM);
        let [(_, end)] = &ended[..] else {
            panic!("{case}: {ended:?}")
        };
        assert!(!end.active && end.text.contains(reason), "{case}: {end:?}");
        assert!(scene.run(60, CALM).is_empty(), "{case}");
    }
}

#[test]
fn alerts_of_idle_and_removed_classes_end() {
    let mut scene = Scene::new(vec![class("a", 1)]);
    let lossy = Traffic { loss: 0.1, ..CALM };
    assert_eq!(scene.run(60, lossy).len(), 1);
    let mut ended = Vec::new();
    let silent = UNJUDGED_NS / SECOND + 20;
    for _ in 0..silent {
        ended.extend(scene.world.second(&mut scene.history));
    }
    assert_eq!(ended.len(), 1);
    assert!(!ended[0].active && ended[0].text.contains("too little traffic"));

    assert_eq!(scene.run(60, lossy).len(), 1);
    let ended = scene.history.configure(Vec::new(), &[]).unwrap();
    assert_eq!(ended.len(), 1);
    assert!(!ended[0].active && ended[0].text.contains("removed"));
    let back = scene
        .history
        .configure(vec![class("a", 1)], &scene.world.counts);
    assert!(back.unwrap().is_empty());
    assert!(scene.active_alerts().is_empty());
}

#[test]
fn unselected_kinds_have_no_alerts() {
    let subnet = RowSpec {
        kind: Kind::Subnet,
        ..class("a", 1)
    };
    let mut scene = Scene::new(vec![subnet]);
    let lossy = Traffic { loss: 0.1, ..CALM };
    assert!(scene.run(120, lossy).is_empty());
    scene.history.set_settings(Settings {
        alerts: AlertRules {
            kinds: vec![Kind::Subnet],
            ..AlertRules::default()
        },
        ..Settings::default()
    });
    assert_eq!(scene.run(120, lossy).len(), 1);
}

/// A region with two sites, of three and of two classes.
fn region() -> Vec<RowSpec> {
    vec![
        group("region"),
        below(0, group("north")),
        below(1, class("a", 1)),
        below(1, class("b", 2)),
        below(1, class("c", 3)),
        below(0, group("south")),
        below(5, class("d", 4)),
        below(5, class("e", 5)),
    ]
}

/// Loss at some classes of the region for a time, and little loss at the others. Begins and ends.
fn lossy_region(scene: &mut Scene, seconds: u64, lossy: &[u32]) -> Vec<String> {
    losing(scene, seconds, lossy, 60)
}

/// The same with another number of packets lost, of 300 per second.
fn losing(scene: &mut Scene, seconds: u64, lossy: &[u32], packets: u32) -> Vec<String> {
    let mut reported = Vec::new();
    for _ in 0..seconds {
        for slot in 1..=5 {
            let lost = if lossy.contains(&slot) { packets } else { 0 };
            scene.world.data(slot, DOWN, 300, lost, 0);
        }
        for alert in scene.world.second(&mut scene.history) {
            let state = if alert.active { "begins" } else { "ends" };
            reported.push(format!("{} {state}, {} below", alert.class, alert.below));
            assert_eq!(
                alert.text.contains(" below"),
                alert.below > 0 && alert.active
            );
        }
    }
    reported
}

fn listed(scene: &Scene) -> Vec<String> {
    let alerts = snapshot_of(&scene.history).alerts.into_iter();
    alerts
        .map(|alert| format!("{} {}", alert.class, alert.below))
        .collect()
}

/// Thousands of alerts must not travel with each row of `fairpath check`.
#[test]
fn alerts_are_listed_on_request_only() {
    let mut scene = Scene::new(region());
    lossy_region(&mut scene, 60, &[4]);
    let listed = |query| scene.history.snapshot(&query, Meta::default()).alerts.len();
    assert_eq!(listed(Query::default()), 0);
    let limit = 1;
    let query = |alerts| Query {
        alerts,
        limit,
        ..Query::default()
    };
    assert_eq!([false, true].map(query).map(listed), [0, 1]);
    assert_eq!(scene.history.status(Meta::default()).alerts.len(), 1);
}

#[test]
fn a_fault_of_one_class_is_one_alert() {
    let mut scene = Scene::new(region());
    // The site and the region lose more than the threshold, too.
    assert_eq!(lossy_region(&mut scene, 60, &[4]), ["d begins, 0 below"]);
    for name in ["region", "south", "d"] {
        assert_eq!(
            row(&scene.history, name).alerts,
            [AlertKind::Loss],
            "{name}"
        );
    }
    assert_eq!(listed(&scene), ["d 0"]);
    assert_eq!(lossy_region(&mut scene, 60, &[]), ["d ends, 0 below"]);
    assert!(listed(&scene).is_empty());
}

#[test]
fn a_fault_of_a_site_is_one_alert() {
    let mut scene = Scene::new(region());
    let begins = ["north begins, 3 below"];
    assert_eq!(lossy_region(&mut scene, 60, &[1, 2, 3]), begins);
    assert_eq!(listed(&scene), ["north 3"]);
    // One class has a separate fault, which stays when that of the site is over.
    let rest = losing(&mut scene, 120, &[2], 4);
    assert_eq!(rest, ["north ends, 0 below", "b begins, 0 below"]);
    assert_eq!(listed(&scene), ["b 0"]);
}

/// A site with this number of classes below a region. Class `at` has slot `at`, from 1.
fn site_of(classes: u32) -> Vec<RowSpec> {
    let mut rows = vec![group("region"), below(0, group("site"))];
    rows.extend((1..=classes).map(|at| below(1, class(&format!("c{at}"), at))));
    rows
}

/// Loses packets of 300 per second at each class. Returns begins and ends with their second.
fn site_losing(scene: &mut Scene, seconds: u64, loss: impl Fn(u64, u32) -> f64) -> Vec<String> {
    let classes = scene.history.rows() as u32 - 2;
    let mut reported = Vec::new();
    for second in 1..=seconds {
        for slot in 1..=classes {
            let mean = 300.0 * loss(second, slot);
            let noise = scene.dice.normal() * mean.sqrt();
            let lost = (mean + noise).round().max(0.0) as u32;
            scene.world.data(slot, DOWN, 300, lost, 0);
        }
        for alert in scene.world.second(&mut scene.history) {
            let state = if alert.active { "begins" } else { "ends" };
            reported.push(format!("{} {state} at {second}", alert.class));
        }
    }
    reported
}

/// 1,000 classes end in four intervals or, each with separate noise, within a minute. Sparse ones take
/// minutes. Each has the alert of the site only.
#[test]
fn a_site_that_recovers_reports_one_end() {
    let sparse = |second: u64, slot: u32| match (slot % 3, second % 5) {
        (0, 1..) => 0.0,
        _ => 1.0,
    };
    for rest in [0.0, 0.006] {
        let mut scene = Scene::new(site_of(1_000));
        let began = site_losing(&mut scene, 60, |_, _| 0.2);
        assert_eq!(began.len(), 1, "{began:?}");
        assert!(began[0].starts_with("site begins"), "{began:?}");
        let ended = site_losing(&mut scene, 240, |second, slot| rest * sparse(second, slot));
        assert_eq!(ended.len(), 1, "{rest}: {ended:?}");
        assert!(ended[0].starts_with("site ends"), "{rest}: {ended:?}");
        assert!(listed(&scene).is_empty());
    }
}

/// A class that fails after the end of its site does not wait for the others.
#[test]
fn a_class_failing_after_its_site_is_reported() {
    let mut scene = Scene::new(site_of(50));
    assert_eq!(site_losing(&mut scene, 60, |_, _| 0.2).len(), 1);
    assert_eq!(site_losing(&mut scene, 42, |_, _| 0.0).len(), 1);
    let one = |_: u64, slot: u32| if slot == 7 { 0.2 } else { 0.0 };
    let began = site_losing(&mut scene, 25, one);
    assert_eq!(began.len(), 1, "{began:?}");
    assert!(began[0].starts_with("c7 begins"), "{began:?}");
}

#[test]
fn a_fault_of_all_sites_is_one_alert() {
    let mut scene = Scene::new(region());
    let all = lossy_region(&mut scene, 60, &[1, 2, 3, 4, 5]);
    assert_eq!(all, ["region begins, 7 below"]);
    assert_eq!(lossy_region(&mut scene, 90, &[]), ["region ends, 0 below"]);
}

#[test]
fn other_classes_below_an_alert_only_count() {
    let mut scene = Scene::new(region());
    let first = lossy_region(&mut scene, 60, &[1, 2]);
    assert_eq!(first, ["north begins, 2 below"]);
    assert!(lossy_region(&mut scene, 60, &[1, 2, 3]).is_empty());
    assert_eq!(listed(&scene), ["north 3"]);
    // Another fault, in another site, is another alert.
    let other = lossy_region(&mut scene, 60, &[1, 2, 3, 5]);
    assert!(
        other
            .iter()
            .all(|text| text.starts_with("e ") || text.starts_with("region "))
    );
    assert!(!other.is_empty());
}

#[test]
fn reported_alerts_survive_restarts_and_removed_sites() {
    let mut scene = Scene::new(region());
    assert_eq!(lossy_region(&mut scene, 60, &[1, 2, 3]).len(), 1);
    let state = scene.history.save();
    let mut again = History::restore(Settings::default(), scene.world.now, state);
    let none = again.configure(region(), &scene.world.counts).unwrap();
    assert!(none.is_empty(), "it was reported before: {none:?}");
    scene.history = again;
    assert_eq!(listed(&scene), ["north 3"]);
    // Without the site, its classes have the fault.
    let rows = vec![class("a", 1), class("b", 2), class("c", 3)];
    let counts = scene.world.counts.clone();
    let changed = scene.history.configure(rows, &counts).unwrap();
    let texts: Vec<_> = changed
        .iter()
        .map(|a| (a.class.as_str(), a.active))
        .collect();
    assert_eq!(
        texts,
        [("north", false), ("a", true), ("b", true), ("c", true)]
    );
    assert_eq!(lossy_region(&mut scene, 60, &[]).len(), 3);
}

/// Saves the state, and restores it with these rows.
fn restart(scene: &mut Scene, rows: Vec<RowSpec>) {
    let bytes = scene.history.save().to_bytes().unwrap();
    let state = State::from_bytes(&bytes).unwrap();
    scene.history = History::restore(Settings::default(), scene.world.now, state);
    let again = scene.history.configure(rows, &scene.world.counts).unwrap();
    assert!(again.is_empty(), "{again:?}");
}

#[test]
fn no_reported_alert_is_repeated_after_a_restart() {
    let classes = 2 * MAX_ALERTS_PER_INTERVAL as u32 - 100;
    let rows: Vec<RowSpec> = (1..=classes)
        .map(|at| class(&format!("c{at}"), at))
        .collect();
    let mut scene = Scene::new(rows.clone());
    let run = |scene: &mut Scene, seconds: u64, lost: u32| {
        let mut alerts = Vec::new();
        for _ in 0..seconds {
            (1..=classes).for_each(|slot| scene.world.data(slot, DOWN, 300, lost, 0));
            alerts.extend(scene.world.second(&mut scene.history));
        }
        alerts
    };
    // The first restart is between the begins of the first classes and those of the others.
    assert_eq!(run(&mut scene, 20, 60).len(), MAX_ALERTS_PER_INTERVAL);
    restart(&mut scene, rows.clone());
    let others = run(&mut scene, 60, 60);
    assert_eq!(others.len(), classes as usize - MAX_ALERTS_PER_INTERVAL);
    assert!(others.iter().all(|alert| alert.active));
    restart(&mut scene, rows);
    assert_eq!(run(&mut scene, 60, 60), []);
    assert_eq!(listed(&scene).len(), classes as usize);
    let ends = run(&mut scene, 60, 0);
    assert_eq!(ends.len(), classes as usize);
    assert!(ends.iter().all(|alert| !alert.active));
}

#[test]
fn each_reported_alert_ends_after_a_restart() {
    let mut scene = Scene::new(region());
    assert_eq!(lossy_region(&mut scene, 60, &[1]), ["a begins, 0 below"]);
    let site = lossy_region(&mut scene, 60, &[1, 2, 3]);
    assert!(
        site.iter().any(|text| text.starts_with("north begins")),
        "{site:?}"
    );
    restart(&mut scene, region());
    assert!(lossy_region(&mut scene, 60, &[1, 2, 3]).is_empty());
    let mut ends = lossy_region(&mut scene, 120, &[]);
    ends.sort();
    let begun: std::collections::BTreeSet<_> = site
        .iter()
        .map(|text| text.split(' ').next().unwrap())
        .chain(["a"])
        .collect();
    let expected: Vec<_> = begun
        .iter()
        .map(|name| format!("{name} ends, 0 below"))
        .collect();
    assert_eq!(ends, expected);
}

#[test]
fn rows_that_appear_late_continue_their_alerts() {
    let interface = |name: &str, slot: u32| RowSpec {
        kind: Kind::Interface,
        ..class(name, slot)
    };
    let rows = || vec![class("a", 1), interface("ppp0", 2)];
    let mut scene = Scene::new(rows());
    let begins = both_lossy(&mut scene, 60, 60);
    assert_eq!(begins, ["a begins", "ppp0 begins"]);
    // The interface appears after a minute, and the class a minute later.
    restart(&mut scene, Vec::new());
    for rows in [vec![interface("ppp0", 2)], rows()] {
        (0..60).for_each(|_| assert_eq!(scene.world.second(&mut scene.history), []));
        let counts = scene.world.counts.clone();
        assert_eq!(scene.history.configure(rows, &counts).unwrap(), []);
    }
    assert_eq!(listed(&scene).len(), 2);
    assert!(both_lossy(&mut scene, 60, 60).is_empty());
    assert_eq!(both_lossy(&mut scene, 60, 0), ["a ends", "ppp0 ends"]);
}

/// Both slots lose this number of packets of 300 per second.
fn both_lossy(scene: &mut Scene, seconds: u64, lost: u32) -> Vec<String> {
    let mut reported = Vec::new();
    for _ in 0..seconds {
        (1..=2).for_each(|slot| scene.world.data(slot, DOWN, 300, lost, 0));
        let alerts = scene.world.second(&mut scene.history).into_iter();
        reported.extend(alerts.map(|alert| {
            let state = if alert.active { "begins" } else { "ends" };
            format!("{} {state}", alert.class)
        }));
    }
    reported
}

#[test]
fn alerts_of_rows_removed_while_stopped_end() {
    let mut scene = Scene::new(vec![class("a", 1), class("b", 2)]);
    assert_eq!(both_lossy(&mut scene, 60, 60).len(), 2);
    restart(&mut scene, vec![class("b", 2)]);
    let mut ended = Vec::new();
    for second in 1..=UNJUDGED_NS / SECOND + 10 {
        scene.world.data(2, DOWN, 300, 60, 0);
        let alerts = scene.world.second(&mut scene.history).into_iter();
        ended.extend(alerts.map(|alert| (second, alert)));
    }
    let [(second, end)] = &ended[..] else {
        panic!("{ended:?}")
    };
    assert_eq!((end.class.as_str(), end.active), ("a", false));
    assert!(*second >= UNJUDGED_NS / SECOND && end.text.contains("missing since the restart"));
    // It returns without an alert.
    let rows = vec![class("a", 1), class("b", 2)];
    let counts = scene.world.counts.clone();
    assert_eq!(scene.history.configure(rows, &counts).unwrap(), []);
    assert_eq!(listed(&scene), ["b 0"]);
}

/// A normal class: the median and the number of samples of each second.
struct Nature {
    sigma: f64,
    wander: f64,
    bursts: bool,
    remotes: bool,
    rate: u64,
    drift: f64,
    burst_left: u64,
    remote_ms: f64,
}

impl Nature {
    fn of(number: u64) -> Nature {
        Nature {
            sigma: [0.05, 0.2, 0.5, 1.0][number as usize % 4],
            wander: [0.0, 0.0, 0.2][number as usize % 3],
            bursts: number % 5 == 1,
            remotes: number % 5 == 2,
            rate: [2, 10, 40][number as usize / 2 % 3],
            drift: 0.0,
            burst_left: 0,
            remote_ms: 20.0,
        }
    }

    fn second(&mut self, world: &mut World, slot: u32, dice: &mut Dice) {
        // A slow variation of a minute, bursts of load, and occasionally another remote.
        self.drift = self.drift * (1.0 - 1.0 / 60.0) + self.wander * dice.normal() * 0.18;
        if self.bursts && self.burst_left == 0 && dice.below(90) == 0 {
            self.burst_left = 5 + dice.below(30);
        }
        if self.remotes && dice.below(30) == 0 {
            self.remote_ms = [10.0, 20.0, 80.0][dice.below(3) as usize];
        }
        let burst = if self.burst_left > 0 { 3.0 } else { 1.0 };
        self.burst_left = self.burst_left.saturating_sub(1);
        let median = self.remote_ms * self.drift.exp() * burst;
        for _ in 0..dice.below(2 * self.rate + 1) {
            world.rtt(slot, INSIDE, dice.rtt(median, self.sigma));
        }
        let lost = (0..100).filter(|_| dice.share() < 0.01).count() as u32;
        world.data(slot, DOWN, 100, lost, 0);
        world.bytes(slot, DOWN, 100, 100_000);
    }
}

#[test]
fn noise_raises_almost_no_alerts() {
    // FAIRPATH_NOISE_HOURS sets a longer duration.
    let hours = std::env::var("FAIRPATH_NOISE_HOURS").ok();
    let hours = hours.and_then(|hours| hours.parse().ok()).unwrap_or(2u64);
    let classes = 30u32;
    let rows = (1..=classes)
        .map(|at| class(&format!("c{at}"), at))
        .collect();
    let mut world = World::new(classes as usize + 1);
    let mut history = world.history(rows);
    let mut dice = Dice(20_260);
    let mut natures: Vec<Nature> = (0..u64::from(classes)).map(Nature::of).collect();
    let mut began: Vec<String> = Vec::new();
    for _ in 0..hours * 3600 {
        for (at, nature) in natures.iter_mut().enumerate() {
            nature.second(&mut world, at as u32 + 1, &mut dice);
        }
        let alerts = world.second(&mut history);
        let active = alerts.into_iter().filter(|alert| alert.active);
        began.extend(active.map(|alert| format!("{:?} {}", alert.alert, alert.text)));
    }
    let class_hours = u64::from(classes) * hours;
    println!(
        "{} false alerts in {class_hours} class hours: {began:#?}",
        began.len()
    );
    assert!(began.len() as u64 * 30 <= class_hours, "{began:#?}");
}
