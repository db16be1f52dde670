//! Experiments that come with the binary.

/// Names with the files of `experiments/` that they are called after.
macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../experiments/", $name, ".toml")))),+]
    };
}

/// In the order of `fairpath lab list`; a new experiment is its file and a line here.
const SHIPPED: &[(&str, &str)] = shipped![
    "ripe88",
    "loss-cost",
    "jitter",
    "delay-step",
    "fairness",
    "bufferbloat",
    "voice",
    "switch-cc",
    "schedulers",
    "bbr-versions",
    "nfqueue",
];

/// Names in order.
pub fn names() -> impl Iterator<Item = String> {
    SHIPPED.iter().map(|(name, _)| (*name).to_owned())
}

/// The file of the experiment called so.
pub fn text(name: &str) -> Option<&'static str> {
    let found = SHIPPED.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Document, FormName};

    /// Its question in words, its command, each of its axes, and what it does not say.
    #[test]
    fn every_shipped_experiment_has_page_of_the_guide() {
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/guide/lab");
        for name in super::names() {
            let page = std::fs::read_to_string(format!("{guide}/{name}.md"));
            let page = page.unwrap_or_else(|error| panic!("{name}.md: {error}"));
            assert!(page.starts_with(&format!("# {name}: ")), "{name}");
            assert!(page.contains("## Reading the report"), "{name}");
            let command = format!("fairpath lab run {name} ");
            assert!(page.contains(&command), "{name}");
            for axis in &Document::open(&name).unwrap().base().axes {
                assert!(
                    page.contains(&format!("`{}`", axis.name)),
                    "{name}: {}",
                    axis.name
                );
            }
        }
    }

    #[test]
    fn a_figure_of_unknown_quantity_is_refused() {
        let text = super::text("ripe88").unwrap();
        let text = text.replace("y = \"goodput\"", "y = \"godput\"");
        let error = Document::parse("x.toml", &text).unwrap_err().to_string();
        assert!(error.contains("did you mean \"goodput\"?"), "{error}");
    }

    /// Every switch and step leaves time for the measurements before and after it, in both forms.
    #[test]
    fn changes_are_reported_with_old_and_new_values() {
        for name in ["switch-cc", "delay-step"] {
            let document = Document::open(name).unwrap();
            for form in [FormName::Quick, FormName::Full] {
                for setting in document.settings(form) {
                    let run = document.at(form, &setting).unwrap();
                    let [change] = run.changes()[..] else {
                        panic!("{name} {setting:?}: {:?}", run.changes());
                    };
                    assert!(change >= run.warmup + 5.0, "{name} {setting:?}");
                    assert!(run.seconds >= change + 10.0, "{name} {setting:?}");
                }
            }
            let figures = &document.base().figures;
            assert!(figures.iter().any(|figure| figure.y == "goodput-kept"));
        }
        assert_eq!(Document::open("ripe88").unwrap().base().changes(), [0.0; 0]);
    }

    #[test]
    fn a_flows_name_determines_its_kind() {
        let document = Document::open("fairness").unwrap();
        let kind = |flow| document.base().kind_of(flow).map(|(name, _)| name.as_str());
        assert_eq!(kind("first"), Some("first"));
        assert_eq!(kind("first-2"), Some("first"));
        assert_eq!(kind("first-control"), None);
    }
}
