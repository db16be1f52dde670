// The table of loaded rules. It is hidden without rules, and closed until someone opens it.

import { age, bytes, clock, count, NONE, rateParts } from "/numbers.js";

// Rules in an answer of `/api/page` while the table is open; closed, its heading needs their state only.
const LISTED = 30;
// A reading of rules that is older, milliseconds, is named.
const OLD_MS = 3000;

const $ = (id) => document.getElementById(id);

// The number of rules to request; none between two lists while the table is closed.
export const wanted = (lists) => ($("loaded-rules").open ? LISTED : lists ? 1 : 0);

function cell(text, className) {
  const made = document.createElement("td");
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

// Rare packets are not shown as none.
function perSecond(value) {
  if (value > 0 && value < 9.95) return value.toFixed(1);
  return rateParts(value).join(" ").trim();
}

function row([family, table, chain, text, file, line, packets, size, pps, bps], hasRates) {
  const made = document.createElement("tr");
  const place = line === 0 ? NONE : `${file.split("/").pop()}:${line}`;
  const name = cell(text, "rule");
  const at = cell(place, "extra");
  if (line > 0) at.title = `${file}:${line}`;
  made.append(
    name,
    cell(`${family} ${table} ${chain}`, "chain"),
    at,
    cell(hasRates ? perSecond(pps) : NONE),
    cell(hasRates ? rateParts(bps).join(" ").trim() : NONE),
    cell(count(packets), "extra"),
    cell(bytes(size), "extra"),
  );
  return made;
}

function state(rules, now) {
  const parts = [`${count(rules.total)} ${rules.total === 1 ? "rule" : "rules"}`];
  if (rules.confirm_ms !== null) parts.push(`not confirmed, ends in ${age(rules.confirm_ms * 1e6)}`);
  if (rules.went_back) parts.push("the last load was not confirmed");
  if (!rules.deciding) parts.push("in the shadow");
  if (rules.rejected_are_answered === false) parts.push("rejected packets get no answer");
  if (rules.counter_mode !== "exact") parts.push(rules.counter_mode === "none" ? "without counters" : "sampled counters");
  if (now - rules.unix_ms > OLD_MS) parts.push(`read at ${clock(rules.unix_ms * 1e6, true)}`);
  return parts.join(" · ");
}

// Shows the rules of an answer that requested some.
export function show(rules, now) {
  $("loaded-rules").hidden = !rules;
  if (!rules) return;
  $("rules-state").textContent = state(rules, now);
  $("rules-state").classList.toggle("critical", rules.confirm_ms !== null || rules.went_back);
  if (!$("loaded-rules").open) return;
  const rows = rules.rules.map((rule) => row(rule, rules.has_rates));
  $("rules").tBodies[0].replaceChildren(...rows);
  $("rules-more").hidden = rules.total <= rows.length;
  $("rules-more").textContent = `The ${rows.length} with the highest packet rates.`;
}
