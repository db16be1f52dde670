//! Parses the URL parameters of requests.
//!
//! Unknown parameters are refused, so that a misspelt filter cannot return all rows.

use fairpath_history::series::SeriesQuery;
use fairpath_history::snapshot::{Query, Sort};
use serde::de::value::{Error as Unknown, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer};

/// Maximum number of rows in one answer.
pub(super) const MAX_ROWS: usize = 1000;
/// Maximum number of rows in one answer of `/api/page`.
pub(super) const MAX_PAGE_ROWS: usize = 200;
/// Maximum number of affected classes and of alerts in one answer of `/api/page`.
pub(super) const MAX_PAGE_LIST: usize = 50;
/// Maximum number of loaded rules in one answer of `/api/page`.
const MAX_PAGE_RULES: usize = 100;
/// Maximum number of rows with reversed folding.
const MAX_FOLDS: usize = 100;
/// Points of the last intervals in a brief answer of `/api/detail`: more than the page can miss.
pub(super) const BRIEF_POINTS: usize = 10;
/// Maximum length of each list of peers and flows in one answer.
pub(super) const MAX_PEERS: usize = 100;
const PEERS: usize = 10;
/// Maximum size of a filter or of the name of a class, bytes.
const MAX_TEXT_BYTES: usize = 512;

/// The parameters of `/api/snapshot`: sort, limit, filter, under, kind, depth, history, alerts, rules.
pub(super) fn snapshot(parameters: &str) -> Result<Query, String> {
    let mut query = Query::default();
    for (name, value) in form_urlencoded::parse(parameters.as_bytes()) {
        match &*name {
            "sort" => query.sort = word::<Sort>(&name, &value)?,
            "kind" => query.kind = some(&name, &value, word)?,
            "filter" => query.filter = some(&name, &value, text)?,
            "under" => query.under = some(&name, &value, text)?,
            "depth" => query.depth = some(&name, &value, number)?,
            "limit" => query.limit = number(&name, &value)?,
            "history" => query.history = number::<u8>(&name, &value)? != 0,
            "alerts" => query.alerts = number::<u8>(&name, &value)? != 0,
            "rules" => query.rules = number(&name, &value)?,
            _ => return Err(format!("unknown parameter {name:?}")),
        }
    }
    if query.limit == 0 || query.limit > MAX_ROWS {
        query.limit = MAX_ROWS;
    }
    Ok(query)
}

/// A query of the page, and the parts of its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageQuery {
    pub query: Query,
    /// Maximum length of each list of alerts. 0 for none.
    pub lists: usize,
    pub counters: bool,
}

/// The parameters of `/api/page`: sort, by_parent, search, fold_from, fold (several), offset, limit,
/// lists, counters, after_ms, rules.
pub(super) fn page(parameters: &str) -> Result<PageQuery, String> {
    let mut query = Query {
        history: true,
        ..Query::default()
    };
    let (mut lists, mut counters) = (0, false);
    for (name, value) in form_urlencoded::parse(parameters.as_bytes()) {
        match &*name {
            "sort" => query.sort = word::<Sort>(&name, &value)?,
            "by_parent" => query.by_parent = number::<u8>(&name, &value)? != 0,
            "search" => query.search = some(&name, &value, text)?,
            "fold_from" => query.folded_from_depth = some(&name, &value, number)?,
            "fold" => query.fold_except.push(text(&name, &value)?),
            "offset" => query.offset = number(&name, &value)?,
            "limit" => query.limit = number(&name, &value)?,
            "lists" => lists = number::<usize>(&name, &value)?.min(MAX_PAGE_LIST),
            "rules" => query.rules = number::<usize>(&name, &value)?.min(MAX_PAGE_RULES),
            "counters" => counters = number::<u8>(&name, &value)? != 0,
            "after_ms" => query.total_after_unix_ns = some(&name, &value, end_of_ms)?,
            _ => return Err(format!("unknown parameter {name:?}")),
        }
    }
    if query.fold_except.len() > MAX_FOLDS {
        return Err(format!(
            "parameter \"fold\" is given more than {MAX_FOLDS} times"
        ));
    }
    if query.limit == 0 || query.limit > MAX_PAGE_ROWS {
        query.limit = MAX_PAGE_ROWS;
    }
    query.affected = lists;
    (query.alerts, query.past_alerts) = (lists > 0, lists > 0);
    Ok(PageQuery {
        query,
        lists,
        counters,
    })
}

/// The last nanosecond of a millisecond, so that points in it are not after it. 0 for 0.
fn end_of_ms(name: &str, value: &str) -> Result<u64, String> {
    let ms: u64 = number(name, value)?;
    Ok(match ms {
        0 => 0,
        ms => ms.saturating_mul(1_000_000).saturating_add(999_999),
    })
}

/// A query of details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DetailQuery {
    pub class: String,
    pub limit: usize,
    /// Without the day, and with the newest [`BRIEF_POINTS`] only.
    pub brief: bool,
}

/// The parameters of `/api/detail`: class, limit, brief.
pub(super) fn detail(parameters: &str) -> Result<DetailQuery, String> {
    let (mut class, mut limit, mut brief) = (None, PEERS, false);
    for (name, value) in form_urlencoded::parse(parameters.as_bytes()) {
        match &*name {
            "class" => class = Some(text(&name, &value)?),
            "limit" => limit = number(&name, &value)?,
            "brief" => brief = number::<u8>(&name, &value)? != 0,
            _ => return Err(format!("unknown parameter {name:?}")),
        }
    }
    let class = class.ok_or("parameter \"class\" is missing")?;
    Ok(DetailQuery {
        class,
        limit: limit.min(MAX_PEERS),
        brief,
    })
}

/// The parameters of `/api/history`: name, kind, and since, until and step in seconds.
pub(super) fn history(parameters: &str) -> Result<SeriesQuery, String> {
    let seconds = |name: &str, value: &str| {
        let seconds = number::<u64>(name, value)?;
        let ns = seconds.checked_mul(1_000_000_000);
        ns.ok_or_else(|| format!("parameter {name:?} is too large: {value:?}"))
    };
    let (mut name_of, mut kind, mut since, mut until, mut step_ns) = (None, None, None, None, None);
    for (name, value) in form_urlencoded::parse(parameters.as_bytes()) {
        match &*name {
            "name" => name_of = Some(text(&name, &value)?),
            "kind" => kind = some(&name, &value, word)?,
            "since" => since = Some(seconds(&name, &value)?),
            "until" => until = Some(seconds(&name, &value)?),
            "step" => step_ns = Some(seconds(&name, &value)?),
            _ => return Err(format!("unknown parameter {name:?}")),
        }
    }
    let missing = |name: &str| format!("parameter {name:?} is missing");
    Ok(SeriesQuery {
        name: name_of.ok_or_else(|| missing("name"))?,
        kind,
        since_unix_ns: since.ok_or_else(|| missing("since"))?,
        until_unix_ns: until.ok_or_else(|| missing("until"))?,
        step_ns,
    })
}

/// Returns `None` for an empty value.
fn some<T>(
    name: &str,
    value: &str,
    read: fn(&str, &str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    read(name, value).map(Some)
}

fn word<T: DeserializeOwned>(name: &str, value: &str) -> Result<T, String> {
    let word: StrDeserializer<'_, Unknown> = value.into_deserializer();
    T::deserialize(word).map_err(|error| format!("parameter {name:?}: {error}"))
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    let wrong = |_| format!("parameter {name:?} is not a number in range: {value:?}");
    value.parse().map_err(wrong)
}

fn text(name: &str, value: &str) -> Result<String, String> {
    if value.len() > MAX_TEXT_BYTES {
        return Err(format!(
            "parameter {name:?} is longer than {MAX_TEXT_BYTES} bytes"
        ));
    }
    Ok(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairpath_history::snapshot::Kind;

    #[test]
    fn parameters_become_a_query() {
        let query =
            snapshot("sort=inside_p95&limit=20&filter=a%20b&under=&kind=subnet&depth=2&history=1");
        let wanted = Query {
            sort: Sort::InsideP95,
            filter: Some("a b".to_owned()),
            kind: Some(Kind::Subnet),
            depth: Some(2),
            limit: 20,
            history: true,
            ..Query::default()
        };
        assert_eq!(query, Ok(wanted));
        assert!(snapshot("alerts=1").unwrap().alerts);
        assert!(!snapshot("limit=1&alerts=0").unwrap().alerts);
        let details = detail("class=S%C3%BCd&limit=5&brief=1").unwrap();
        let wanted = DetailQuery {
            class: "Süd".to_owned(),
            limit: 5,
            brief: true,
        };
        assert_eq!(details, wanted);
        let wanted = SeriesQuery {
            name: "anna".to_owned(),
            kind: Some(Kind::Class),
            since_unix_ns: 5_000_000_000,
            until_unix_ns: 9_000_000_000,
            step_ns: None,
        };
        assert_eq!(history("name=anna&kind=class&since=5&until=9"), Ok(wanted));
    }

    #[test]
    fn parameters_of_the_page_become_a_query() {
        let page = page(
            "sort=loss&by_parent=1&search=10.1.2.3&fold_from=1&fold=a&fold=b%20c&offset=7&limit=30&lists=9&after_ms=5",
        );
        let page = page.unwrap();
        let wanted = Query {
            sort: Sort::Loss,
            by_parent: true,
            search: Some("10.1.2.3".to_owned()),
            folded_from_depth: Some(1),
            fold_except: vec!["a".to_owned(), "b c".to_owned()],
            offset: 7,
            limit: 30,
            history: true,
            alerts: true,
            past_alerts: true,
            affected: 9,
            total_after_unix_ns: Some(5_999_999),
            ..Query::default()
        };
        assert_eq!((page.query, page.lists, page.counters), (wanted, 9, false));
    }

    #[test]
    fn no_parameter_exceeds_the_limits() {
        assert_eq!(snapshot("").unwrap().limit, MAX_ROWS);
        assert_eq!(snapshot("limit=0").unwrap().limit, MAX_ROWS);
        assert_eq!(snapshot("limit=99999").unwrap().limit, MAX_ROWS);
        assert_eq!(detail("class=a&limit=99999").unwrap().limit, MAX_PEERS);
        for rows in ["limit=0", "limit=201", ""] {
            assert_eq!(page(rows).unwrap().query.limit, MAX_PAGE_ROWS);
        }
        assert_eq!(page("lists=99999").unwrap().lists, MAX_PAGE_LIST);
        assert!(page(&"fold=a&".repeat(101)).is_err());
        assert!(snapshot(&format!("filter={}", "x".repeat(513))).is_err());
    }

    #[test]
    fn an_invalid_parameter_is_refused_by_name() {
        for parameters in [
            "sort=speed",
            "limit=-1",
            "limit=a",
            "filtre=x",
            "histograms=1",
            "kind=x",
        ] {
            let name = parameters.split('=').next().unwrap();
            assert!(
                snapshot(parameters).unwrap_err().contains(name),
                "{parameters}"
            );
        }
        assert!(detail("limit=3").unwrap_err().contains("class"));
        for (parameters, name) in [
            ("name=a&since=1", "until"),
            ("since=1&until=2", "name"),
            ("name=a&since=-1&until=2", "since"),
            ("name=a&since=1&until=99999999999999", "until"),
            ("name=a&since=1&until=2&limit=3", "limit"),
        ] {
            let refused = history(parameters).unwrap_err();
            assert!(refused.contains(&format!("{name:?}")), "{refused}");
        }
        for parameters in [
            "sort=x",
            "offset=-1",
            "filter=a",
            "after_ms=a",
            "fold_from=x",
        ] {
            let name = parameters.split('=').next().unwrap();
            assert!(page(parameters).unwrap_err().contains(name), "{parameters}");
        }
    }
}
