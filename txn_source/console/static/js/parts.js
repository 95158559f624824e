/** Small parts that pages share. */

import { h, s } from './dom.js';
import { href } from './format.js';

const ICONS = {
  critical: 'M8 1 15 14.5H1Z M8 6v4 M8 12v.6',
  warning: 'M8 1.5a6.5 6.5 0 1 0 .01 0Z M8 4.5v4.5 M8 11v.6',
  info: 'M8 1.5a6.5 6.5 0 1 0 .01 0Z M8 7.5V12 M8 4.6v.6',
  ok: 'M8 1.5a6.5 6.5 0 1 0 .01 0Z M5 8.2l2.2 2.3L11.2 6',
};

/** An icon of a severity ("critical", "warning", "info", "ok"); its name is for screen readers. */
export function icon(kind) {
  return s('svg', { class: `icon ${kind}`, viewBox: '0 0 16 16', role: 'img', 'aria-label': kind },
    s('path', { d: ICONS[kind] ?? ICONS.info, 'vector-effect': 'non-scaling-stroke' }));
}

/** An error as its fact and remedy. */
export function fault(error) {
  const remedy = error.remedy ? [' ', h('span.remedy', {}, error.remedy)] : null;
  return h('div.fault', {}, icon('critical'), h('p', {}, error.fact ?? String(error.message ?? error), remedy,
    error.code ? [' ', h('code.quiet', {}, error.code)] : null));
}

/** What shows where nothing is. */
export const empty = (title, ...more) => h('div.empty', {}, h('p', {}, title), more.length ? h('p.quiet', {}, more) : null);

/** A heading, what leads to it, and acts at its right. `trail`: [[text, address], ...]. */
export function heading(title, { trail = [], acts = null, about = null } = {}) {
  return h('div.heading', {},
    trail.length ? h('nav.trail', { 'aria-label': 'Where this is' }, trail.map(([text, to]) => [h('a', { href: to }, text), h('span', { 'aria-hidden': 'true' }, '/')])) : null,
    h('div.heading-row', {}, h('h1', { tabindex: '-1' }, title), acts ? h('div.acts', {}, acts) : null),
    about ? h('p.about', {}, about) : null);
}

/** A short state: "open", "aborted", "tiered" ... `kind`: ok, warn, bad, plain. */
export const badge = (text, kind = 'plain', title = null) => h(`span.badge.${kind}`, { title }, text);

/** A topic's name without what all full names begin with. */
export const shortName = (topic) => topic.replace(/^persistent:\/\//, '');

/** The name so that its namespace is cut off first where there is little room, since topics differ behind it. */
function topicName(name) {
  const short = shortName(name);
  const at = short.lastIndexOf('/') + 1;
  return [at ? h('span.namespace', {}, short.slice(0, at)) : null, h('span.topic', {}, short.slice(at))];
}

/** Links to a topic, one of its partitions (whose number is never cut off), one of its subscriptions. */
export const topicLink = (name) => h('a.pair', { href: href(['topics', name]), title: name }, topicName(name));
export const partitionLink = (topic, partition, text = null) =>
  h('a', { class: text ? null : 'pair', href: href(['topics', topic, String(partition)]), title: `${topic}, partition ${partition}` },
    text ?? [topicName(topic), h('span.at', {}, ` / ${partition}`)]);
export const subscriptionLink = (topic, name) =>
  h('a', { href: href(['subscriptions', topic, name]), title: `${name} of ${topic}` }, name);

/** Facts as pairs: [[label, value], ...]; null values are left out. */
export const facts = (pairs) =>
  h('dl.facts', {}, pairs.filter((pair) => pair && pair[1] !== null && pair[1] !== undefined)
    .map(([label, value]) => h('div', {}, h('dt', {}, label), h('dd', {}, value))));

/** Tabs as links: [[key, text, address], ...]. */
export const tabs = (label, items, current) =>
  h('nav.tabs', { 'aria-label': label }, items.map(([key, text, to]) =>
    h('a', { href: to, 'aria-current': key === current ? 'page' : null }, text)));
