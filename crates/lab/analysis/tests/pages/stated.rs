//! The statements of a page on runs with known properties.

use fairpath_analysis::figure::FigureKind;
use fairpath_analysis::grid::Grid;
use fairpath_analysis::results::Results;
use fairpath_analysis::{page, summary};
use fairpath_report::figure::{Figure, Role, Scale, Series};
use fairpath_report::{Block, Cell, NoticeKind, ReportDocument, Section, Table};

use crate::synthetic::{self, LIMIT_BPS, invalidate};

fn section<'a>(report: &'a ReportDocument, title: &str) -> &'a Section {
    let found = report.sections.iter().find(|s| s.title == title);
    found.unwrap_or_else(|| panic!("no section \"{title}\""))
}

fn figures(section: &Section) -> Vec<&Figure> {
    let blocks = section.blocks.iter();
    blocks
        .filter_map(|block| match block {
            Block::Figure(figure) => Some(figure),
            _ => None,
        })
        .collect()
}

fn table<'a>(section: &'a Section, id: &str) -> Option<&'a Table> {
    section.blocks.iter().find_map(|block| match block {
        Block::Table(table) if table.id == id => Some(table),
        _ => None,
    })
}

fn series<'a>(figure: &'a Figure, panel: &str, name: &str) -> &'a Series {
    let panel = figure.panels.iter().find(|p| p.title == panel);
    let panel = panel.unwrap_or_else(|| panic!("no panel in {}", figure.id));
    let found = panel.series.iter().find(|s| s.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {}", figure.id))
}

fn quick() -> Results {
    synthetic::ripe88(&["0%", "1%", "10%"], 3)
}

#[test]
fn summary_has_the_loss_cost_by_congestion_control() {
    let report = page::report(&quick());
    let texts: Vec<String> = report
        .summary
        .iter()
        .map(|h| h.text.replace('\u{a0}', " "))
        .collect();
    let cubic = texts
        .iter()
        .find(|t| t.starts_with("symmetric, cubic"))
        .unwrap();
    assert!(
        cubic.contains("goodput falls from") && cubic.contains("packets lost 1% instead of 0%"),
        "{cubic}"
    );
    assert!(cubic.contains("90 % confidence"), "{cubic}");
    assert!(report.summary.iter().all(|h| h.figure.is_some()));
}

#[test]
fn curve_has_medians_intervals_models_and_the_link() {
    let results = quick();
    let report = page::report(&results);
    let goodput = figures(section(&report, "Results"))[0];
    assert_eq!(goodput.panels.len(), 2);
    let cubic = series(goodput, "symmetric", "cubic");
    let at: Vec<f64> = cubic.points.iter().map(|p| p.x).collect();
    assert_eq!(at, [0.0, 0.01, 0.1]);
    let of = |loss: &str| -> Vec<f64> {
        let mut values: Vec<f64> = results
            .runs
            .iter()
            .filter(|r| r.setting["loss"] == loss && r.setting["cc"] == "cubic")
            .filter(|r| r.setting["topology"] == "symmetric")
            .map(|r| r.flows[0].goodput_bps)
            .collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let one = of("1%");
    assert_eq!(cubic.points[1].y, one[1]);
    assert_eq!(cubic.points[1].interval, Some((one[0], one[2])));
    let theory = goodput.panels[0]
        .series
        .iter()
        .filter(|s| s.role == Role::Theory);
    assert_eq!(theory.count(), 3, "CUBIC has three models, BBR none");
    assert_eq!(goodput.panels[0].references.len(), 1, "the link");
    assert!(
        goodput.caption.contains("75\u{a0}% confidence"),
        "{}",
        goodput.caption
    );
    assert!(
        goodput
            .command
            .as_deref()
            .unwrap()
            .starts_with("fairpath lab run ripe88")
    );
}

#[test]
fn models_start_at_the_link_and_fall_below() {
    let report = page::report(&quick());
    let goodput = figures(section(&report, "Results"))[0];
    let mathis = series(goodput, "symmetric", "Mathis for cubic");
    assert_eq!(mathis.points[0].y, LIMIT_BPS);
    assert!(mathis.points[1].y < 0.5 * LIMIT_BPS);
    let residuals = table(section(&report, "Models"), "models").unwrap();
    assert_eq!(
        residuals.rows.len(),
        6,
        "both topologies, three losses, CUBIC alone"
    );
}

/// At 10 % nothing is acknowledged from 2 to 3.2 s of the 4.9 s between samples, and 12 timeouts came.
#[test]
fn unmodelled_timeouts_are_reported() {
    let mut results = quick();
    let reported = |results: &Results| {
        let report = page::report(results);
        let models = section(&report, "Models").clone();
        let list = models.blocks.iter().find_map(|block| match block {
            Block::List(list) => Some(list.clone()),
            _ => None,
        });
        let texts = list.unwrap().into_iter().map(|t| t.replace('\u{a0}', " "));
        let about = |text: &String| text.starts_with("Retransmission timeouts");
        let table = table(&models, "models").unwrap().clone();
        (texts.filter(about).collect::<Vec<String>>(), table)
    };
    assert_eq!(reported(&results).0, [""; 0], "none came");
    for run in &mut results.runs {
        if run.setting["loss"] == "10%" && run.setting["cc"] == "cubic" {
            run.flows[0].loss_events.as_mut().unwrap().timeouts = 12;
            let samples = &mut run.flows[0].samples;
            let acked = samples[20].bytes_acked;
            samples[20..=32]
                .iter_mut()
                .for_each(|sample| sample.bytes_acked = acked);
        }
    }
    let (texts, table) = reported(&results);
    let [text] = &texts[..] else {
        panic!("{texts:?}");
    };
    for part in [
        "in 2 of 4 settings with loss",
        "Up to 24.5 % of the time",
        ": 2.4 timeouts per second)",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let column = |name: &str| table.columns.iter().position(|c| c.name == name).unwrap();
    let (b, one) = (column("Mathis"), column("Mathis, C = 1.22"));
    let lossy = table
        .rows
        .iter()
        .filter(|row| row.cells.contains(&"10%".into()));
    assert_eq!(lossy.clone().count(), 2);
    for row in lossy {
        let (Cell::Number(b), Cell::Number(one)) = (&row.cells[b], &row.cells[one]) else {
            panic!("{row:?}");
        };
        assert!((one / b / 2.0_f64.sqrt() - 1.0).abs() < 1e-9, "two an ACK");
        assert_eq!(row.cells[column("Timeouts")], (12.0 / 4.9).into());
    }
}

#[test]
fn an_axis_without_figure_makes_separate_panels() {
    let report = page::report(&quick());
    let again = figures(section(&report, "Results"))[1];
    let titles: Vec<&str> = again.panels.iter().map(|p| p.title.as_str()).collect();
    assert_eq!(titles, ["symmetric", "asymmetric"]);
    for series in again.panels.iter().flat_map(|p| &p.series) {
        for point in &series.points {
            assert!(point.note.contains("n\u{a0}=\u{a0}3"), "{}", point.note);
        }
    }
}

#[test]
fn invalid_runs_are_reported_and_excluded_from_figures() {
    let clean = synthetic::ripe88(&["0%", "1%", "10%"], 4);
    let mut disturbed = clean.clone();
    let last: Vec<usize> = (0..disturbed.runs.len())
        .filter(|i| disturbed.runs[*i].repeat == 3)
        .collect();
    for index in &last {
        invalidate(&mut disturbed.runs[*index]);
    }
    let mut without = clean;
    without.runs.retain(|run| run.repeat < 3);
    let (disturbed, without) = (page::report(&disturbed), page::report(&without));
    assert_eq!(
        figures(section(&disturbed, "Results")),
        figures(section(&without, "Results"))
    );
    let reported = table(
        section(&disturbed, "Validation of the emulation"),
        "excluded",
    )
    .unwrap();
    assert_eq!(reported.rows.len(), last.len());
    assert!(reported.rows.iter().all(|row| row.marked));
    let warned = |n: &&fairpath_report::Notice| n.kind == NoticeKind::Warning;
    assert!(
        disturbed
            .notices
            .iter()
            .find(warned)
            .unwrap()
            .text
            .contains("12 of 48 runs")
    );
    let runs = table(section(&disturbed, "Provenance"), "runs").unwrap();
    assert_eq!(runs.rows.iter().filter(|row| row.marked).count(), 12);
}

#[test]
fn figures_of_the_talk_are_compared_by_share() {
    let report = page::report(&quick());
    let talk = section(&report, "Comparison with the talk");
    let shares = figures(talk)[0];
    let theirs = series(shares, "symmetric", "cubic, the talk");
    assert_eq!(theirs.role, Role::Published);
    assert!((theirs.points[1].y - 235.5 / 804.67).abs() < 1e-12);
    let ours = series(shares, "symmetric", "cubic");
    assert_eq!((ours.points[0].y, ours.points[0].interval), (1.0, None));
    assert!(ours.points[1].y < 0.5 && ours.points[1].interval.is_some());
    assert_eq!(table(talk, "talk").unwrap().rows.len(), 10);
    let other = page::report(&synthetic::voice(3));
    assert!(
        other
            .sections
            .iter()
            .all(|s| s.title != "Comparison with the talk")
    );
}

#[test]
fn an_unfinished_grid_lists_missing_runs() {
    let mut results = quick();
    results.runs.truncate(7);
    results.manifest.ended = None;
    let report = page::report(&results);
    let reported = report
        .notices
        .iter()
        .any(|n| n.text.contains("29 of 36 runs are missing"));
    assert!(reported, "{:?}", report.notices);
}

#[test]
fn a_page_without_valid_runs_states_it() {
    let mut results = quick();
    results.runs.iter_mut().for_each(invalidate);
    let report = page::report(&results);
    assert!(report.summary.is_empty());
    assert!(report.notices[0].text.contains("there are no results"));
    assert!(figures(section(&report, "Results")).is_empty());
    results.runs.clear();
    let report = page::report(&results);
    assert!(
        report.notices[0].text.contains("No run is complete"),
        "{:?}",
        report.notices
    );
}

#[test]
fn flows_of_one_run_are_lines_of_timeline() {
    let report = page::report(&synthetic::fairness(3));
    let figures = figures(section(&report, "Results"));
    let names: Vec<&str> = figures[1].panels[0]
        .series
        .iter()
        .map(|s| s.name.as_str())
        .collect();
    assert_eq!(names, ["first", "second"]);
    assert_eq!(figures[1].panels.len(), 6, "three pairs, two buffers");
    let jain = &figures[0].panels[0];
    let (low, high) = jain.y.range.unwrap();
    assert!(low < 0.5 && high == 1.0, "the least index is not the edge");
    let share = series(figures[2], "", "buffer 30kb");
    assert_eq!(share.points.len(), 2, "no share of BBR where there is none");
}

#[test]
fn jitter_lowers_the_call_rating() {
    let report = page::report(&synthetic::voice(3));
    let mos = figures(section(&report, "Results"))[0];
    let cubic = series(mos, "", "cubic");
    assert!(
        cubic.points[0].y > cubic.points[2].y + 0.1,
        "{:?}",
        cubic.points
    );
    let (low, high) = mos.panels[0].y.range.unwrap();
    assert!(low < 1.0 && high == 4.5, "a rating of 1 is not the edge");
    let together = table(section(&report, "Correlations"), "correlations").unwrap();
    let rho = |row: &fairpath_report::TableRow| match row.cells[3] {
        fairpath_report::Cell::Number(rho) => rho,
        _ => panic!("{row:?}"),
    };
    assert!(
        together.rows.iter().take(2).all(|row| rho(row) < -0.8),
        "{together:?}"
    );
}

#[test]
fn a_second_grid_has_its_own_figure() {
    let report = page::report(&synthetic::ripe88_full(3));
    let results = figures(section(&report, "Results"));
    let titles = |figure: &Figure| -> Vec<String> {
        figure.panels.iter().map(|p| p.title.clone()).collect()
    };
    assert_eq!(
        titles(results[0]),
        [
            "symmetric, round trip 5\u{a0}ms",
            "asymmetric, round trip 5\u{a0}ms"
        ],
        "round trips with two losses only belong to another figure"
    );
    let by_rtt = results.last().unwrap();
    assert_eq!(
        titles(by_rtt),
        ["symmetric, packets lost 0%", "symmetric, packets lost 1%"]
    );
    let talk = table(section(&report, "Comparison with the talk"), "talk").unwrap();
    assert_eq!(
        talk.rows.len(),
        10,
        "only at the round trip at which the talk's axes vary"
    );
    let reported = report
        .summary
        .iter()
        .filter(|h| h.text.contains("round trip 500\u{a0}ms"));
    assert!(reported.count() <= 2, "{:?}", report.summary);
    assert!(
        report.summary[0].text.contains("packets lost 1%"),
        "{:?}",
        report.summary
    );
}

#[test]
fn a_repeated_run_counts_once() {
    let mut results = quick();
    let mut again = results.runs[5].clone();
    invalidate(&mut results.runs[5]);
    again.place = 36;
    results.runs.push(again);
    let report = page::report(&results);
    let runs = report.facts.iter().find(|f| f.name == "Runs").unwrap();
    assert_eq!(runs.value, "36 of 36, 1 repeated, 1 excluded");
    assert!(
        report.notices.iter().all(|n| !n.text.contains("missing")),
        "{:?}",
        report.notices
    );
}

#[test]
fn a_constant_axis_makes_no_empty_figure() {
    let mut results = quick();
    results
        .manifest
        .axes
        .push(synthetic::axis("rtt", "round trip", &["0.5ms"]));
    let mut over = results.manifest.figures[0].clone();
    over.x = Some("rtt".into());
    results.manifest.figures.insert(0, over);
    for run in &mut results.runs {
        run.setting.insert("rtt".into(), "0.5ms".into());
    }
    let report = page::report(&results);
    let shown = section(&report, "Results");
    assert!(shown.blocks.iter().all(|b| !matches!(b, Block::Notice(_))));
    let first = figures(shown)[0];
    assert_eq!(report.summary[0].figure.as_deref(), Some(first.id.as_str()));
    assert!(first.id.contains("goodput-by-loss"), "{}", first.id);
}

#[test]
fn scaled_rates_stand_next_to_scaled_round_trips() {
    let full = page::report(&synthetic::ripe88_full(3));
    let results = section(&full, "Results");
    let plain = |text: &str| text.replace('\u{a0}', " ");
    let by_rtt = figures(results)
        .into_iter()
        .find(|figure| figure.id.contains("by-rtt"))
        .unwrap();
    assert_eq!(by_rtt.panels[0].x.label, "round trip");
    let cubic = series(by_rtt, "symmetric, packets lost 1%", "cubic");
    let at: Vec<f64> = cubic.points.iter().map(|point| point.x).collect();
    assert_eq!(at, [0.005, 0.05, 0.5], "seconds of the scaled network");
    let stated = "scaled: 5 ms is configured as 0.5ms, 50 ms as 5ms, 500 ms as 50ms.";
    let caption = plain(&by_rtt.caption);
    assert!(caption.ends_with(stated), "{caption}");
    assert_eq!(
        plain(&figures(results)[0].panels[0].title),
        "symmetric, round trip 5 ms"
    );
    let everywhere = full.summary.iter().map(|headline| plain(&headline.text));
    for text in everywhere {
        assert!(!text.contains("0.5ms"), "{text}");
    }
    let runs = table(section(&full, "Provenance"), "runs").unwrap();
    assert!(runs.rows[0].cells.contains(&"5\u{a0}ms".into()));
    let quick = page::report(&quick());
    let fact = quick.facts.iter().find(|fact| fact.name == "Round trip");
    let fact = plain(&fact.unwrap().value);
    assert_eq!(fact, "5 ms, configured as 500 µs");
    // The talk's rates are those of a real network.
    let talk = table(section(&quick, "Comparison with the talk"), "talk").unwrap();
    let names: Vec<&str> = talk.columns.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(
        names[names.len() - 3..],
        ["The talk, change", "Here, change", "The talk"]
    );
    let unscaled = page::report(&synthetic::voice(3));
    assert!(unscaled.facts.iter().all(|fact| fact.name != "Round trip"));
}

/// The quick form, in which CUBIC has no valid run at 1 % on the symmetric path.
fn with_a_gap() -> Results {
    let mut results = quick();
    for run in &mut results.runs {
        let setting = &run.setting;
        if setting["cc"] == "cubic" && setting["loss"] == "1%" && setting["topology"] == "symmetric"
        {
            invalidate(run);
        }
    }
    results
}

#[test]
fn a_setting_without_valid_run_is_a_gap() {
    let results = with_a_gap();
    let report = page::report(&results);
    let shown = figures(section(&report, "Results"));
    let cubic = series(shown[0], "symmetric", "cubic");
    let [gap] = &cubic.gaps[..] else {
        panic!("{:?}", cubic.gaps);
    };
    assert_eq!((gap.x, gap.label.as_str()), (0.01, "no valid run"));
    let at: Vec<f64> = cubic.points.iter().map(|p| p.x).collect();
    assert_eq!(at, [0.0, 0.1]);
    assert!(series(shown[0], "asymmetric", "cubic").gaps.is_empty());
    // Bars: the place of the name.
    assert_eq!(series(shown[1], "symmetric", "cubic").gaps[0].x, 1.0);
    // Inside runs: an entry of the legend, in the colour of the line.
    for figure in &shown[2..4] {
        let named = series(figure, "symmetric, packets lost 1%", "cubic: no valid run");
        assert_eq!((named.key.as_str(), named.points.len()), ("cubic", 0));
    }
}

#[test]
fn settings_without_valid_run_are_named_first() {
    let results = with_a_gap();
    let report = page::report(&results);
    let named = "No run of these settings is valid: symmetric, cubic, packets lost 1%.";
    let warned = |n: &&fairpath_report::Notice| n.kind == NoticeKind::Warning;
    let mut warnings = report.notices.iter().filter(warned);
    assert!(
        warnings.any(|n| n.text.contains(named)),
        "{:?}",
        report.notices
    );
    let unknown = "symmetric, cubic: goodput with packets lost 1% instead of 0% is unknown, because no run \
        with packets lost 1% is valid.";
    let texts: Vec<&str> = report.summary.iter().map(|h| h.text.as_str()).collect();
    assert!(texts.contains(&unknown), "{texts:?}");

    let terminal = summary::text(&Grid::new(&results));
    let lines: Vec<&str> = terminal.lines().collect();
    assert_eq!(lines[0], "What loss costs CUBIC and BBR");
    assert_eq!(
        lines[lines.len() - 2..],
        [
            "Invalid runs: 3 of 36, excluded from all figures",
            "Settings without a valid run: symmetric, cubic, packets lost 1%"
        ]
    );
    let whole = summary::text(&Grid::new(&quick()));
    assert!(whole.ends_with("Invalid runs: none of 36\n"), "{whole}");
}

#[test]
fn many_settings_without_valid_run_are_counted() {
    let losses: Vec<String> = (0..30).map(|i| format!("{i}%")).collect();
    let losses: Vec<&str> = losses.iter().map(String::as_str).collect();
    let mut results = synthetic::ripe88(&losses, 1);
    results.runs.iter_mut().skip(1).for_each(invalidate);
    let named = summary::without_valid_run(&Grid::new(&results)).unwrap();
    assert_eq!(named.split("; ").count(), summary::MAX_NAMED_SETTINGS + 1);
    assert!(named.ends_with("; 99 more"), "{named}");
}

#[test]
fn every_compared_figure_has_a_headline() {
    for results in [quick(), synthetic::fairness(3), synthetic::voice(3)] {
        let grid = Grid::new(&results);
        let figures: Vec<_> = grid.figures().collect();
        let compared = figures
            .iter()
            .filter(|spec| spec.kind != FigureKind::Timeline)
            .count();
        let report = page::report(&results);
        let mut shown: Vec<&str> = report
            .summary
            .iter()
            .filter_map(|h| h.figure.as_deref())
            .collect();
        shown.dedup();
        assert_eq!(shown.len(), compared, "{shown:?}");
        let terminal = summary::text(&grid);
        for spec in figures.iter().filter(|s| s.kind != FigureKind::Timeline) {
            assert!(terminal.contains(&spec.title), "{}: {terminal}", spec.title);
        }
    }
}

/// Figures of the runs over time, by setting.
fn over_time(report: &ReportDocument) -> Vec<(&str, &Figure)> {
    let blocks = section(report, "Runs over time").blocks.iter();
    blocks
        .filter_map(|block| match block {
            Block::Details(title, inner) => match &inner[..] {
                [Block::Figure(figure)] => Some((title.as_str(), figure)),
                _ => panic!("{title}"),
            },
            _ => None,
        })
        .collect()
}

#[test]
fn valid_runs_of_a_setting_are_overlaid() {
    let mut results = quick();
    let first = results.runs[0].setting.clone();
    let mut of_first = results.runs.iter_mut().filter(|run| run.setting == first);
    invalidate(of_first.next().unwrap());
    let report = page::report(&results);
    let settings = over_time(&report);
    assert_eq!(
        settings.len(),
        12,
        "two paths, two congestion controls, three losses"
    );
    let (title, figure) = settings[0];
    assert_eq!(title, "symmetric, cubic, packets lost 0% (2 valid runs)");
    let titles: Vec<&str> = figure.panels.iter().map(|p| p.title.as_str()).collect();
    assert_eq!(titles, ["Rate", "Round trip", "Congestion window", "Queue"]);
    for panel in &figure.panels {
        let keys: Vec<&str> = panel.series.iter().map(|s| s.key.as_str()).collect();
        assert_eq!(keys, ["cubic", "cubic"]);
        assert!(
            panel
                .series
                .iter()
                .all(|s| (2..=100).contains(&s.points.len()))
        );
    }
    // Round trips of 8 ms over links of 5 ms.
    let [rtt, queue] = [1, 3].map(|panel| &figure.panels[panel].series[0].points);
    for (rtt, queue) in rtt.iter().zip(queue) {
        assert!(
            (rtt.y - 0.005 - queue.y).abs() < 1e-12 && queue.y > 0.001,
            "{queue:?}"
        );
    }
    assert_eq!(report.first_colours[..2], ["cubic", "bbr"]);
}

#[test]
fn flows_of_equal_congestion_are_named_over_time() {
    let report = page::report(&synthetic::fairness(3));
    let settings = over_time(&report);
    let names = |index: usize| -> Vec<&str> {
        let rate = &settings[index].1.panels[0];
        rate.series
            .iter()
            .map(|s| s.name.as_str())
            .take(2)
            .collect()
    };
    assert_eq!(names(0), ["first (cubic)", "second (cubic)"]);
    assert_eq!(names(4), ["bbr", "cubic"]);
}

#[test]
fn large_grids_show_some_runs_over_time() {
    let losses: Vec<String> = (0..40).map(|i| format!("{i}%")).collect();
    let losses: Vec<&str> = losses.iter().map(String::as_str).collect();
    let report = page::report(&synthetic::ripe88(&losses, 5));
    let settings = over_time(&report);
    assert_eq!(settings.len(), 24);
    assert!(
        settings[0].0.ends_with("(3 of 5 valid runs)"),
        "{}",
        settings[0].0
    );
    let Block::Text(text) = &section(&report, "Runs over time").blocks[0] else {
        panic!("no text");
    };
    assert!(text.contains("136 further settings"), "{text}");
}

#[test]
fn rates_over_decades_have_a_logarithmic_axis() {
    let scale = |results: &Results| {
        let report = page::report(results);
        let goodput = figures(section(&report, "Results"))[0].clone();
        goodput.panels[0].y.scale.clone()
    };
    let mut results = quick();
    assert_eq!(scale(&results), Scale::Linear, "80 and 8 Mbit/s");
    for run in &mut results.runs {
        if run.setting["loss"] == "10%" && run.setting["cc"] == "cubic" {
            run.flows[0].goodput_bps = 0.5e6;
        }
    }
    assert_eq!(scale(&results), Scale::Log);
}
