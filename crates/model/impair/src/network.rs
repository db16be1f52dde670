//! What a direction may be asked to do, in words: as the command line has them, and without dashes.

use clap::Parser;

/// What a network does to packets. Values are as `impair = { ... }` of a tree has them.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Impairment")]
pub struct Network {
    /// Share of packets lost, such as 1%
    #[arg(long, value_name = "SHARE")]
    pub loss: Option<String>,
    /// Of a packet's loss with that of the one before, such as 25%: bursts, and the same share
    #[arg(long, value_name = "SHARE")]
    pub loss_correlation: Option<String>,
    /// Gilbert and Elliott: to bad, to good, loss in bad, loss in good, such as 1%,25%,70%,0.1%
    #[arg(long, alias = "gilbert-elliott", value_name = "P,R[,BAD[,GOOD]]")]
    pub gemodel: Option<String>,
    /// Four states: p13,p31,p32,p23,p14
    #[arg(
        long = "4state",
        alias = "four-state",
        value_name = "P13,P31[,P32[,P23[,P14]]]"
    )]
    pub four_state: Option<String>,
    /// Losses as ones, such as 0001000, over and over
    #[arg(long, value_name = "BITS")]
    pub pattern: Option<String>,
    /// Added to each packet, such as 20ms
    #[arg(long, value_name = "TIME")]
    pub delay: Option<String>,
    /// How far delays vary, such as 2ms
    #[arg(long, value_name = "TIME")]
    pub jitter: Option<String>,
    /// Of the jitter: uniform, normal, pareto, paretonormal, or a file with a delay in each line
    #[arg(long, value_name = "NAME")]
    pub distribution: Option<String>,
    /// Of a packet's delay with that of the one before, such as 25%; keeps mean and jitter
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    pub correlation: Option<String>,
    /// Whether packets keep their order under jitter: kept or free
    #[arg(long, value_name = "ORDER")]
    pub order: Option<String>,
    /// Share of packets that go ahead, without delay
    #[arg(long, value_name = "SHARE")]
    pub reorder: Option<String>,
    /// One packet of so many may go ahead, at most
    #[arg(long, value_name = "N")]
    pub reorder_gap: Option<String>,
    /// Share of packets that leave twice
    #[arg(long, value_name = "SHARE")]
    pub duplicate: Option<String>,
    /// Share of packets with a bit turned over
    #[arg(long, value_name = "SHARE")]
    pub corrupt: Option<String>,
    /// Packets leave in slots: least time between them, most, packets and bytes of one, such as
    /// 10ms,30ms,8,12000
    #[arg(long, value_name = "MIN[,MAX[,PACKETS[,BYTES]]]")]
    pub slot: Option<String>,
    /// Packets are held, and leave together this often
    #[arg(long, value_name = "TIME")]
    pub release: Option<String>,
    /// Times and delays over and over: a file with a pair a line
    #[arg(long, value_name = "FILE")]
    pub delay_trace: Option<String>,
    /// Bits a second that leave, such as 100mbit
    #[arg(long, value_name = "RATE")]
    pub rate: Option<String>,
    /// Bytes that may leave at once after a pause; none by default
    #[arg(long, value_name = "BYTES", requires = "rate")]
    pub burst: Option<String>,
    /// Bytes that each packet takes of the rate besides its frame without checksum, such as 24
    #[arg(long, value_name = "BYTES")]
    pub overhead: Option<String>,
    /// Bytes of a cell's payload, of which a packet takes whole ones (48 for ATM)
    #[arg(long, value_name = "BYTES")]
    pub cell: Option<String>,
    /// Bytes of a cell's head; 5 as ATM has
    #[arg(long, value_name = "BYTES")]
    pub cell_overhead: Option<String>,
    /// Opportunities to send 1504 bytes over and over: a time in ms a line, as Mahimahi has them
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    pub rate_trace: Option<String>,
    /// Of the queue before the rate, as `fairpath sched list` names them; fifo by default
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// A parameter of the policy, such as target=10ms; may be repeated
    #[arg(long, value_name = "NAME=VALUE", requires = "policy")]
    pub set: Vec<String>,
    /// Packets that the queue holds, without those in the pipe
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
}

impl Network {
    /// Of words as options have them, without their dashes; "none" is nothing.
    ///
    /// # Errors
    /// What is no option, or lacks its value: as clap says it of options.
    pub fn of_words(text: &str) -> Result<Network, String> {
        /// A network and nothing else.
        #[derive(Parser)]
        #[command(no_binary_name = true, disable_help_flag = true)]
        struct OneWay {
            #[command(flatten)]
            network: Network,
        }
        if text.trim() == "none" {
            return Ok(Network::default());
        }
        let words = options_of(text);
        let parsed = OneWay::try_parse_from(&words).map_err(|error| {
            let said = error.to_string();
            let first = said.lines().next().unwrap_or_default();
            first.trim_start_matches("error: ").to_owned()
        })?;
        Ok(parsed.network)
    }

    /// Values by the keys of [`fairpath_sched::impair::Builder`]; rate and queue are others'.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let plain = [
            ("loss", &self.loss),
            ("loss_correlation", &self.loss_correlation),
            ("pattern", &self.pattern),
            ("delay", &self.delay),
            ("jitter", &self.jitter),
            ("distribution", &self.distribution),
            ("correlation", &self.correlation),
            ("order", &self.order),
            ("reorder", &self.reorder),
            ("reorder_gap", &self.reorder_gap),
            ("duplicate", &self.duplicate),
            ("corrupt", &self.corrupt),
            ("release", &self.release),
            ("delay_trace", &self.delay_trace),
            ("overhead", &self.overhead),
            ("cell", &self.cell),
            ("cell_overhead", &self.cell_overhead),
            ("rate_trace", &self.rate_trace),
        ];
        let lists = [
            ("gilbert_elliott", &self.gemodel, &["p", "r", "h", "k"][..]),
            (
                "four_state",
                &self.four_state,
                &["p13", "p31", "p32", "p23", "p14"],
            ),
            ("slot", &self.slot, &["min", "max", "packets", "bytes"]),
        ];
        let plain = plain
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.clone()?)));
        let lists = lists
            .into_iter()
            .filter_map(|(key, value, names)| Some((key, named(value.as_deref()?, names))));
        plain.chain(lists).collect()
    }

    /// Whether nothing is asked for.
    pub fn is_none(&self) -> bool {
        *self == Network::default()
    }
}

/// `loss 1% delay=20ms` as options: a key with its value behind a blank or an equals sign.
fn options_of(text: &str) -> Vec<String> {
    let (mut options, mut is_value) = (Vec::new(), false);
    for word in words_of(text) {
        let word = word.as_str();
        if is_value {
            options.push(word.to_owned());
            is_value = false;
            continue;
        }
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (word, None),
        };
        options.push(format!("--{}", key.replace('_', "-")));
        options.extend(value.map(str::to_owned));
        is_value = value.is_none();
    }
    options
}

/// Words between blanks; blanks between double quotes are a word's own, and the quotes are not.
fn words_of(text: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for letter in text.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            blank if blank.is_whitespace() && !is_quoted => words.push(std::mem::take(&mut word)),
            letter => word.push(letter),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// Values in their usual order get their names; those that have names keep them.
fn named(values: &str, names: &[&str]) -> String {
    if values.contains('=') {
        return values.to_owned();
    }
    // One that has no name is refused by its reader.
    let names = names.iter().copied().chain(std::iter::repeat("more"));
    let pair = |(value, name): (&str, &str)| format!("{name}={}", value.trim());
    let pairs: Vec<String> = values.split(',').zip(names).map(pair).collect();
    pairs.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_options_without_dashes() {
        let network = Network::of_words("loss 1% delay 20ms set target=1ms policy codel").unwrap();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(network.loss, text("1%"));
        assert_eq!(network.delay, text("20ms"));
        assert_eq!(network.set, ["target=1ms"]);
        assert!(Network::of_words(" none ").unwrap().is_none());
        let same = Network::of_words("loss=1% delay=20ms set=target=1ms policy=codel");
        assert_eq!(same, Ok(network));
    }

    #[test]
    fn quoted_values_keep_their_blanks() {
        let text = "delay_trace=\"a file\" loss 1%";
        let network = Network::of_words(text).unwrap();
        let wanted = [("loss", "1%"), ("delay_trace", "a file")];
        for pair in wanted.map(|(key, value)| (key, value.to_owned())) {
            assert!(network.settings().contains(&pair), "{network:?}");
        }
    }

    #[test]
    fn values_in_their_usual_order_get_their_names() {
        let of = |text: &str| Network::of_words(text).unwrap().settings();
        let pair = |key, value: &str| (key, value.to_owned());
        assert_eq!(
            of("gemodel 1%,25%,70%"),
            [pair("gilbert_elliott", "p=1%,r=25%,h=70%")]
        );
        assert_eq!(
            of("gilbert_elliott p=1%,r=25%"),
            [pair("gilbert_elliott", "p=1%,r=25%")]
        );
        assert_eq!(of("slot 1ms,2ms"), [pair("slot", "min=1ms,max=2ms")]);
        assert_eq!(
            of("reorder_gap 5 reorder 1%"),
            [pair("reorder", "1%"), pair("reorder_gap", "5")]
        );
    }

    #[test]
    fn a_word_that_is_no_option_is_named() {
        for (text, part) in [
            ("los 1%", "--los"),
            ("loss", "--loss"),
            ("rate 1mbit rate_trace x", "cannot be used with"),
            ("via xdp", "--via"),
        ] {
            let error = Network::of_words(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
