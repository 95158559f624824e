/** Messages of a topic at either isolation level, from a place on, with a search by key. */

import { get } from '../api.js';
import { h, patch, say } from '../dom.js';
import { count, href, number } from '../format.js';
import { messageTable } from '../message_table.js';
import { empty, fault, heading } from '../parts.js';
import { placeFields } from '../place_fields.js';
import { topicField } from '../topic_field.js';

const PAGE = 50;
const MOST = 2000;
const LEVELS = [
  ['read_committed', 'Committed', 'What is decided, and nothing of an aborted transaction'],
  ['read_uncommitted', 'Uncommitted', 'Everything at once, also of open and aborted transactions'],
];

/** The page: a topic is chosen first. Or a part of a topic's page. */
export function page(params) {
  if (params.embedded) return panel(params);
  const { query, setQuery } = params;
  const topic = query.get('topic') ?? '';
  const field = topicField(topic, (name) => (location.hash = href(['messages'], { topic: name, level: query.get('level') })));
  const shown = topic ? panel({ topic, query, setQuery }) : null;
  return {
    title: topic ? `Messages of ${topic}` : 'Messages',
    element: h('div', {}, heading('Messages', { about: 'What a topic holds, as a reader of either isolation level sees it.' }),
      field.element, shown?.element ?? empty('No topic is chosen.')),
    async update() {},
    close() {
      field.close();
      shown?.close();
    },
  };
}

/** The messages of one topic; what is asked for is kept in the address. */
export function panel({ topic, query, setQuery }) {
  const state = h('div.course');
  const told = h('div', { role: 'alert' });
  const more = h('div.more');
  const found = h('div');
  const none = h('div');
  let running = null;
  let asked, table, cursor, done, searched, toSearch;

  const level = query.get('level') === LEVELS[1][0] ? LEVELS[1][0] : LEVELS[0][0];
  const place = placeFields({ name: 'from', label: 'From', given: query.get('from') || 'latest' });
  const partition = h('input', { name: 'partition', inputmode: 'numeric', placeholder: 'all', size: 6, value: query.get('partition') ?? '', title: 'The number of a partition; nothing: all of them', autocomplete: 'off' });
  const key = h('input', { name: 'key', type: 'search', 'data-search': true, value: query.get('key') ?? '', placeholder: 'any', size: 18, autocomplete: 'off', spellcheck: 'false', title: 'The whole key; 0x… for bytes' });
  const levels = LEVELS.map(([value, text, title]) =>
    h('label', { title }, h('input', { type: 'radio', name: 'level', value, checked: value === level, onchange: start }), text));
  const form = h('form.toolbar', { onsubmit: start, 'aria-label': 'Which messages', novalidate: true },
    h('fieldset.choice', {}, h('legend.unseen', {}, 'Isolation level'), levels),
    h('label', {}, 'Partition ', partition), place.element, h('label', {}, 'Key ', key), h('button.primary', { type: 'submit' }, 'Show'));

  function start(event) {
    event?.preventDefault();
    const problem = place.problem() ?? partitionProblem();
    if (problem) return patch(told, fault(problem));
    running?.abort();
    asked = { level: form.elements.level.value, partition: partition.value.trim(), from: place.text(), key: key.value };
    if (event) setQuery({ level: asked.level === LEVELS[0][0] ? null : asked.level, partition: asked.partition, from: asked.from === 'latest' ? null : asked.from, key: asked.key });
    [cursor, done, searched, toSearch] = [null, false, 0, null];
    table = messageTable({ topic, level: asked.level, full: whole });
    found.replaceChildren(table.element);
    return fill();
  }

  function partitionProblem() {
    const text = partition.value.trim();
    if (/^\d*$/.test(text)) return asksForPartition(text);
    return { fact: `“${text}” is no partition.`, remedy: 'Use its number, or nothing for all.' };
  }

  function asksForPartition() {
    return null;
  }

  /** Ask until a page more is there, all were searched, or somebody stops it. */
  async function fill() {
    const course = (running = new AbortController());
    const until = Math.min(table.length + PAGE, MOST);
    patch(told);
    draw();
    try {
      while (!done && table.length < until && running === course) {
        const answer = await get('messages', { topic, ...asked, limit: until - table.length, cursor }, { signal: course.signal });
        if (running !== course) return;
        cursor = answer.next;
        done = answer.done || cursor === null;
        searched += answer.searched_messages ?? answer.rows.length;
        toSearch = answer.to_search ?? toSearch;
        table.add(answer.rows);
        draw();
      }
    } catch (error) {
      if (running !== course) return;
      patch(told, fault(error));
    }
    stop(`${count(table.length, 'message')} shown`);
  }

  function stop(told_aloud) {
    running?.abort();
    running = null;
    draw();
    say(told_aloud);
  }

  function draw() {
    const many = asked.key ? `${count(table.length, 'message')} with this key` : count(table.length, 'message');
    const far = asked.key ? `, ${number(searched)}${toSearch ? ` of ${number(toSearch)}` : ''} searched` : '';
    const end = !running && done && table.length ? ': that is all' : '';
    patch(state, running
      ? [h('progress', { max: toSearch || null, value: toSearch ? Math.min(searched, toSearch) : null, 'aria-label': 'How far the search is' }), h('span', {}, many, far),
         h('button', { type: 'button', onclick: () => stop(`Stopped. ${many}${far}`) }, 'Stop')]
      : h('span.quiet', {}, many, far, end));
    patch(none, !running && done && !table.length ? nothing() : null);
    const full = table.length >= MOST;
    patch(more, running || done ? null : full
      ? h('p.quiet', {}, `${number(MOST)} messages are shown. Begin further on to see others.`)
      : h('button', { type: 'button', onclick: fill }, asked.key ? 'Search on' : 'More messages'));
  }

  function nothing() {
    if (asked.key) return empty('No message has this key.', 'Keys are compared whole, byte for byte.');
    if (asked.level === LEVELS[1][0]) return empty('There are no messages here.');
    return empty('There are no messages here.', 'Messages behind an open transaction are not shown at this level: Uncommitted shows them.');
  }

  async function whole(row) {
    const answer = await get('messages', { topic, level: asked.level, partition: row.partition, position: `${row.position}:${row.index}`, full: 1 });
    if (answer.rows.length) return answer.rows[0];
    throw { fact: 'The message is not there any more.', remedy: '' };
  }

  start();
  return {
    element: h('section.messages', { 'aria-label': 'Messages', own: true }, form, told, state, found, none, more),
    async update() {},
    close() {
      running?.abort();
      running = null;
    },
  };
}
