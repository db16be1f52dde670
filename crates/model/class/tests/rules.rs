//! Compares a lookup in the core's rules, as documented for `Rules`, with the slow lookup.

use std::net::IpAddr;

use fairpath_class::{ClassSet, Drafts, Endpoint, Outcome, SlotKey, Slots, Space, Uplinks};
use fairpath_core::{OTHER, Rules};
use proptest::collection::{hash_set, vec};
use proptest::option;
use proptest::prelude::*;

fn build(text: &str) -> Outcome {
    let mut drafts = Drafts::new();
    drafts.read_csv("c.csv", text);
    ClassSet::build(drafts, Uplinks::Given)
}

fn ifindex_of(name: &str) -> Option<u32> {
    name.strip_prefix("eth")?.parse().ok()
}

/// The order of `Rules`: mark, MAC, longest prefix, VLAN, DSCP, interface.
fn look_up(rules: &Rules, of: &Endpoint<'_>) -> Option<u32> {
    fn find<K: PartialEq>(list: &[(K, u32)], key: Option<K>) -> Option<u32> {
        let key = key?;
        list.iter()
            .find(|(known, _)| *known == key)
            .map(|(_, slot)| *slot)
    }
    let around = rules
        .prefixes
        .iter()
        .filter(|(prefix, _)| prefix.contains(of.address));
    let longest = around
        .max_by_key(|(prefix, _)| prefix.len)
        .map(|(_, slot)| *slot);
    find(&rules.marks, of.mark)
        .or(find(&rules.macs, of.mac))
        .or(longest)
        .or(find(&rules.vlans, of.vlan))
        .or(find(&rules.dscps, of.dscp))
        .or(find(&rules.interfaces, of.interface.and_then(ifindex_of)))
}

/// Addresses with long common prefixes, so that prefixes are nested.
fn address() -> impl Strategy<Value = IpAddr> {
    let v4 = (0u32..16, 0u32..8)
        .prop_map(|(a, b)| IpAddr::from((0x0a00_0000 | a << 20 | b).to_be_bytes()));
    let v6 = (0u128..16, 0u128..8)
        .prop_map(|(a, b)| IpAddr::from((0x2001_0db8 << 96 | a << 90 | b).to_be_bytes()));
    prop_oneof![v4, v6]
}

fn prefix() -> impl Strategy<Value = String> {
    (address(), 0u8..=128).prop_map(|(address, len)| {
        let len = if address.is_ipv4() { len % 33 } else { len };
        let prefix = fairpath_core::Prefix::new(address, len);
        prefix.to_string()
    })
}

/// A CSV of a random tree of classes with distinct criteria.
fn configuration() -> impl Strategy<Value = String> {
    let prefixes = hash_set(prefix(), 0..40);
    let vlans = hash_set(1u16..20, 0..5);
    let marks = (hash_set(1u32..20, 0..5), any::<bool>());
    let macs = hash_set(0u8..20, 0..5);
    let dscps = hash_set(0u8..20, 0..5);
    let interfaces = hash_set(0u8..20, 0..5);
    let parents = vec(option::of(0usize..1000), 1..30);
    let parts = (prefixes, vlans, marks, macs, dscps, interfaces, parents);
    (parts, any::<u64>()).prop_map(
        |((prefixes, vlans, (marks, by_mark), macs, dscps, interfaces, parents), mut seed)| {
            let mut cells = vec![[const { String::new() }; 6]; parents.len()];
            let mut deal = |column: usize, value: String| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let cell = &mut cells[(seed >> 33) as usize % parents.len()][column];
                cell.push_str(&value);
                cell.push(';');
            };
            prefixes.into_iter().for_each(|p| deal(0, p));
            dscps.into_iter().for_each(|d| deal(4, d.to_string()));
            interfaces
                .into_iter()
                .for_each(|i| deal(5, format!("eth{i}")));
            // One of both, because the check refuses their combination.
            if by_mark {
                marks.into_iter().for_each(|m| deal(1, m.to_string()));
            } else {
                vlans.into_iter().for_each(|v| deal(3, v.to_string()));
                macs.into_iter()
                    .for_each(|m| deal(2, format!("02:00:00:00:00:{m:02x}")));
            }
            let mut text = "name,parent,prefix,mark,mac,vlan,dscp,interface\n".to_owned();
            let mut depths: Vec<u32> = Vec::new();
            for (at, (parent, cells)) in parents.iter().zip(&cells).enumerate() {
                let parent = parent
                    .filter(|_| at > 0)
                    .map(|parent| parent % at)
                    .filter(|parent| depths[*parent] < 15);
                depths.push(parent.map_or(0, |parent| depths[parent] + 1));
                let parent = parent.map_or(String::new(), |parent| format!("c{parent}"));
                text += &format!("c{at},{parent},{}\n", cells.join(","));
            }
            text
        },
    )
}

type Facts = (
    IpAddr,
    Option<u32>,
    Option<u8>,
    Option<u16>,
    Option<u8>,
    Option<u8>,
);

fn facts() -> impl Strategy<Value = Facts> {
    (
        address(),
        option::of(1u32..20),
        option::of(0u8..20),
        option::of(1u16..20),
        option::of(0u8..20),
        option::of(0u8..20),
    )
}

proptest! {
    #![proptest_config(fairpath_units::property!(400))]

    #[test]
    fn rules_lead_where_the_slow_lookup_leads(text in configuration(), endpoints in vec(facts(), 1..50)) {
        let outcome = build(&text);
        prop_assert!(outcome.report.errors == 0, "{:?}", outcome.report.problems);
        let set = outcome.set.unwrap();
        let mut slots = Slots::new(1000);
        slots.assign(Space::Class, set.slot_keys());
        let rules = set.rules(&slots, ifindex_of, &outcome.labels, &[7]);
        for (address, mark, mac, vlan, dscp, interface) in endpoints {
            let interface = interface.map(|number| format!("eth{number}"));
            let endpoint = Endpoint {
                address,
                mark,
                mac: mac.map(|last| [2, 0, 0, 0, 0, last]),
                vlan,
                dscp,
                interface: interface.as_deref(),
            };
            let slow = set.classify(&endpoint).map(|class| slots.class(&class.name).unwrap());
            prop_assert_eq!(look_up(&rules, &endpoint), slow, "{:?}", endpoint);
        }
    }

    #[test]
    fn every_class_is_directly_before_those_below_it(text in configuration()) {
        let set = build(&text).set.unwrap();
        for (at, class) in set.classes().iter().enumerate() {
            let depth = set.parent(class).map_or(0, |parent| parent.depth + 1);
            prop_assert_eq!(class.depth, depth);
            prop_assert_eq!(set.position(&class.name), Some(at));
            for (other_at, other) in set.classes().iter().enumerate() {
                let mut above = Some(other);
                while let Some(one) = above.filter(|one| one.name != class.name) {
                    above = set.parent(one);
                }
                prop_assert_eq!(set.subtree(at).contains(&other_at), above.is_some());
            }
        }
    }

    #[test]
    fn slots_are_never_shared_and_never_move(steps in vec((hash_set(0u8..40, 0..30), any::<bool>()), 1..20)) {
        let mut slots = Slots::new(25);
        for (names, release) in steps {
            let before: std::collections::HashMap<_, _> = slots.iter().map(|(key, slot)| (key.clone(), slot)).collect();
            let wanted: Vec<_> = names.iter().map(|name| SlotKey::Class(name.to_string())).collect();
            let assigned = slots.assign(Space::Class, wanted.clone());
            let now: std::collections::HashMap<_, _> = slots.iter().map(|(key, slot)| (key.clone(), slot)).collect();
            let different: std::collections::HashSet<_> = now.values().collect();
            prop_assert_eq!(different.len(), now.len());
            prop_assert!(now.values().all(|slot| *slot != OTHER && *slot < 25 && !assigned.freed.contains(slot)));
            prop_assert_eq!(assigned.kept + assigned.added.len() + assigned.refused, wanted.len());
            for (key, slot) in &before {
                prop_assert!(!wanted.contains(key) || now.get(key) == Some(slot));
            }
            if release {
                assigned.freed.iter().for_each(|slot| assert!(slots.release(*slot)));
            }
        }
    }
}

#[test]
fn classes_without_slot_count_in_other() {
    let set = build("name,prefix,interface\na,192.0.2.1,eth1\nb,192.0.2.2,eth2;lan\n")
        .set
        .unwrap();
    let mut slots = Slots::new(2);
    assert_eq!(slots.assign(Space::Class, set.slot_keys()).refused, 1);
    let rules = set.rules(&slots, ifindex_of, &Default::default(), &[]);
    let slots: Vec<_> = rules.prefixes.iter().map(|(_, slot)| *slot).collect();
    assert_eq!(slots, [1, OTHER]);
    assert_eq!(rules.interfaces, [(1, 1), (2, OTHER)]);
}

#[test]
fn two_names_of_one_interface_are_one_rule() {
    let set = build("name,interface\na,eth1\nb,lan\n").set.unwrap();
    let mut slots = Slots::new(8);
    slots.assign(Space::Class, set.slot_keys());
    let rules = set.rules(&slots, |_| Some(9), &Default::default(), &[3]);
    assert_eq!(rules.interfaces, [(9, 1)]);
    assert_eq!(rules.uplinks, [3]);
}

#[test]
fn criteria_apply_in_their_order() {
    let text = "name,mark,mac,prefix,vlan,dscp,interface\n\
        mark,1,,,,,\nmac,,02:00:00:00:00:01,,,,\nshort,,,10.0.0.0/8,,,\nlong,,,10.1.0.0/16,,,\n\
        vlan,,,,5,,\ndscp,,,,,EF,\ninterface,,,,,,eth1\n";
    // Marks and MAC addresses exclude each other, so there are two configurations.
    let with_mark = build(
        &text
            .replace(",02:00:00:00:00:01,", ",,")
            .replace(",5,", ",,"),
    )
    .set
    .unwrap();
    let with_mac = build(&text.replace("mark,1,", "mark,,")).set.unwrap();
    let mut endpoint = Endpoint {
        address: "10.1.2.3".parse().unwrap(),
        mark: Some(1),
        mac: Some([2, 0, 0, 0, 0, 1]),
        vlan: Some(5),
        dscp: Some(46),
        interface: Some("eth1"),
    };
    let name = |set: &ClassSet, endpoint: &Endpoint<'_>| {
        set.classify(endpoint)
            .map(|class| class.name.clone())
            .unwrap_or_default()
    };
    assert_eq!(name(&with_mark, &endpoint), "mark");
    assert_eq!(name(&with_mac, &endpoint), "mac");
    endpoint.mac = None;
    assert_eq!(name(&with_mac, &endpoint), "long");
    endpoint.address = "10.2.0.1".parse().unwrap();
    assert_eq!(name(&with_mac, &endpoint), "short");
    endpoint.address = "192.0.2.1".parse().unwrap();
    assert_eq!(name(&with_mac, &endpoint), "vlan");
    endpoint.vlan = None;
    assert_eq!(name(&with_mac, &endpoint), "dscp");
    endpoint.dscp = None;
    assert_eq!(name(&with_mac, &endpoint), "interface");
    endpoint.interface = None;
    assert_eq!(name(&with_mac, &endpoint), "");
}
