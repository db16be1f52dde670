//! The impairments of a direction, as options of the command line or as words without dashes.

use clap::Parser;

/// The impairments of a direction. Values have the form of `impair = { ... }` in a tree.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Impairment")]
pub struct Network {
    /// Lose a share of packets, for example 1%
    #[arg(long, value_name = "SHARE")]
    pub loss: Option<String>,
    /// Correlate each loss with the previous packet, for example 25%; the mean loss stays the same
    #[arg(long, value_name = "SHARE")]
    pub loss_correlation: Option<String>,
    /// Lose packets by the Gilbert-Elliott model: good to bad, bad to good, loss in bad, loss in good
    #[arg(long, alias = "gilbert-elliott", value_name = "P,R[,BAD[,GOOD]]")]
    pub gemodel: Option<String>,
    /// Lose packets by the four-state model, for example 1%,30%,10%,80%,0.5%
    #[arg(
        long = "4state",
        alias = "four-state",
        value_name = "P13,P31[,P32[,P23[,P14]]]"
    )]
    pub four_state: Option<String>,
    /// Lose packets by a repeated pattern in which 1 is a loss, for example 0001000
    #[arg(long, value_name = "BITS")]
    pub pattern: Option<String>,
    /// Delay each packet, for example 20ms
    #[arg(long, value_name = "TIME")]
    pub delay: Option<String>,
    /// Vary the delay, for example 2ms
    #[arg(long, value_name = "TIME")]
    pub jitter: Option<String>,
    /// Set the jitter distribution: uniform, normal, pareto, paretonormal, or a file with one delay
    /// per line [default: uniform]
    #[arg(long, value_name = "NAME")]
    pub distribution: Option<String>,
    /// Correlate each delay with the previous one, for example 25%; mean and jitter stay the same
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    pub correlation: Option<String>,
    /// Keep the order of packets under jitter (kept), or not (free) [default: kept]
    #[arg(long, value_name = "ORDER")]
    pub order: Option<String>,
    /// Send a share of packets early, without delay, for example 1%
    #[arg(long, value_name = "SHARE")]
    pub reorder: Option<String>,
    /// Send at most one of this number of packets early, for example 5
    #[arg(long, value_name = "NUMBER")]
    pub reorder_gap: Option<String>,
    /// Duplicate a share of packets, for example 0.1%
    #[arg(long, value_name = "SHARE")]
    pub duplicate: Option<String>,
    /// Invert one bit in a share of packets, for example 0.1%
    #[arg(long, value_name = "SHARE")]
    pub corrupt: Option<String>,
    /// Send packets in slots: minimum and maximum time between slots, packets and bytes per slot, for
    /// example 10ms,30ms,8,12000
    #[arg(long, value_name = "MIN[,MAX[,PACKETS[,BYTES]]]")]
    pub slot: Option<String>,
    /// Release all waiting packets at multiples of this time, for example 10ms
    #[arg(long, value_name = "TIME")]
    pub release: Option<String>,
    /// Repeat a trace of delays: a file with a time and a delay per line
    #[arg(long, value_name = "FILE")]
    pub delay_trace: Option<String>,
    /// Limit the rate, for example 100mbit
    #[arg(long, value_name = "RATE")]
    pub rate: Option<String>,
    /// Allow a burst above the rate after idle time, for example 20kB [default: 0]
    #[arg(long, value_name = "SIZE", requires = "rate")]
    pub burst: Option<String>,
    /// Add link overhead to each frame for the rate, for example 24 bytes [default: 0]
    #[arg(long, value_name = "BYTES")]
    pub overhead: Option<String>,
    /// Count each packet with at least these bytes, overhead included, for example 84 [default: 0]
    #[arg(long, value_name = "BYTES")]
    pub mpu: Option<String>,
    /// Send packets in cells: none, atm (48 bytes in 53) or ptm (64 bytes in 65) [default: none]
    #[arg(long, value_name = "LINK", conflicts_with = "cell")]
    pub atm: Option<String>,
    /// Send packets in whole cells with this payload, for example 48 bytes for ATM
    #[arg(long, value_name = "BYTES")]
    pub cell: Option<String>,
    /// Set the header of a cell [default: 5 bytes, as in ATM]
    #[arg(long, value_name = "BYTES")]
    pub cell_overhead: Option<String>,
    /// Repeat a rate trace of Mahimahi: one time in ms per line at which 1504 bytes may leave
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    pub rate_trace: Option<String>,
    /// Set the policy of the queue before the rate (`fairpath sched list`) [default: fifo]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Set a parameter of the policy, for example target=10ms; repeatable
    #[arg(long, value_name = "NAME=VALUE", requires = "policy")]
    pub set: Vec<String>,
    /// Limit the packets in the queue, without delayed packets; at least 1
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..))]
    pub queue_limit: Option<u32>,
}

impl Network {
    /// Reads options without dashes. "none" means no impairment.
    ///
    /// # Errors
    /// An option is unknown or has no value, with the message of clap.
    pub fn of_words(text: &str) -> Result<Network, String> {
        /// The options of one direction.
        #[derive(Parser)]
        #[command(no_binary_name = true, disable_help_flag = true)]
        struct Options {
            #[command(flatten)]
            network: Network,
        }
        if text.trim() == "none" {
            return Ok(Network::default());
        }
        let words = options_of(text);
        if words.iter().any(|word| word == "--limit") {
            return Err("option limit is replaced by queue-limit".to_owned());
        }
        let parsed = Options::try_parse_from(&words).map_err(|error| {
            let message = error.to_string();
            let first = message.lines().next().unwrap_or_default();
            first.trim_start_matches("error: ").to_owned()
        })?;
        Ok(parsed.network)
    }

    /// Values by the keys of [`fairpath_sched::impair::Builder`], without rate and queue.
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
            ("mpu", &self.mpu),
            ("atm", &self.atm),
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

    /// True if there is no impairment.
    pub fn is_none(&self) -> bool {
        *self == Network::default()
    }
}

/// Converts `loss 1% delay=20ms` to options. A space or an equals sign follows each key.
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

/// Splits words at spaces outside of double quotes, and removes the quotes.
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

/// Adds names to values in their fixed order. Values with names keep them.
fn named(values: &str, names: &[&str]) -> String {
    if values.contains('=') {
        return values.to_owned();
    }
    // The reader refuses values beyond the last name.
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
    fn quoted_values_keep_their_spaces() {
        let text = "delay_trace=\"a file\" loss 1%";
        let network = Network::of_words(text).unwrap();
        let wanted = [("loss", "1%"), ("delay_trace", "a file")];
        for pair in wanted.map(|(key, value)| (key, value.to_owned())) {
            assert!(network.settings().contains(&pair), "{network:?}");
        }
    }

    #[test]
    fn positional_values_get_their_names() {
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
    fn invalid_options_are_named() {
        for (text, part) in [
            ("limit 5", "queue-limit"),
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
