/** Messages of a topic at either isolation level, from a place on, with a search by key. */

import { get, isAway } from '../api.js';
import { h, patch, say } from '../dom.js';
import { count, href, number } from '../format.js';
import { messageTable } from '../message_table.js';
import { empty, fault, heading, icon } from '../parts.js';
import { placeFields } from '../place_fields.js';
import { topicField } from '../topic_field.js';

const PAGE = 50;
const MOST = 2000;
const LEVELS = [
  ['read_committed', 'read_committed', 'What is decided, and nothing of an aborted transaction'],
  ['read_uncommitted', 'read_uncommitted', 'Everything at once, also of open and aborted transactions'],
];

/** The page: a topic is chosen first. */
export function page({ query, setQuery }) {
  const topic = query.get('topic') ?? '';
  const field = topicField(topic, (name) => href(['messages'], { topic: name, level: query.get('level') }));
  const shown = topic ? panel({ topic, query, setQuery }) : null;
  return {
    title: topic ? `Messages of ${topic}` : 'Messages',
    element: h('div', {}, heading('Messages', { about: 'What a topic holds, as a reader of either isolation level sees it.' }),
      field.element, shown?.element),
    async update() {
      await shown?.update();
    },
    close() {
      field.close();
      shown?.close();
    },
  };
}

/** What is asked for by a key as people write it: a text, or bytes as 0x00ff. */
function byKey(text) {
  const bytes = /^0x((?:[0-9a-f]{2})+)$/i.exec(text);
  return bytes ? { key: null, key_hex: bytes[1] } : { key: text };
}

/** The messages of one topic; what is asked for is kept in the address. */
export function panel({ topic, query, setQuery }) {
  const state = h('div.course');
  const told = h('div', { role: 'alert' });
  const more = h('div.more');
  const found = h('div');
  const none = h('div');
  const hidden = h('div');
  let running = null;
  let asked, table, cursor, done, searched, toSearch, order, byPartition;

  const level = query.get('level') === LEVELS[1][0] ? LEVELS[1][0] : LEVELS[0][0];
  const place = placeFields({ name: 'from', label: 'From', given: query.get('from') || 'latest' });
  const partition = h('input', { name: 'partition', inputmode: 'numeric', placeholder: 'all', size: 6, autocomplete: 'off',
    value: query.get('partition') ?? '', title: 'The number of a partition; nothing: all of them' });
  const key = h('input', { name: 'key', type: 'search', 'data-search': true, placeholder: 'any', size: 18, autocomplete: 'off', spellcheck: 'false',
    value: query.get('key') ?? '', title: 'The whole key (0x… for bytes), or the value of a column' });
  const levels = LEVELS.map(([value, text, title]) =>
    h('label', { title }, h('input', { type: 'radio', name: 'level', value, checked: value === level, onchange: start }), text));
  const form = h('form.toolbar', { onsubmit: start, 'aria-label': 'Which messages', novalidate: true },
    h('fieldset.choice', {}, h('legend.unseen', {}, 'Isolation level'), levels),
    h('label', {}, 'Partition ', partition), place.element, h('label', {}, 'Key ', key), h('button.primary', { type: 'submit' }, 'Show'));

  function start(event) {
    event?.preventDefault();
    const problem = place.problem() ?? partitionProblem(partition.value.trim());
    if (problem) return patch(told, fault(problem));
    running?.abort();
    asked = { level: form.elements.level.value, partition: partition.value.trim(), from: place.text(), key: key.value };
    if (event) setQuery({ ...asked, level: asked.level === LEVELS[0][0] ? null : asked.level, from: asked.from === 'latest' ? null : asked.from });
    [cursor, done, searched, toSearch, order, byPartition] = [null, false, 0, null, null, false];
    table = messageTable({ topic, level: asked.level, full: whole });
    found.replaceChildren(table.element);
    tellHidden().catch(() => {});
    return fill();
  }

  function partitionProblem(text) {
    if (/^\d*$/.test(text)) return null;
    return { fact: `“${text}” is no partition.`, remedy: 'Use its number, or nothing for all.' };
  }

  /** Ask until a page more is there, all were searched, or somebody stops it. */
  async function fill() {
    const course = (running = new AbortController());
    const until = Math.min(table.length + PAGE, MOST);
    done = false;
    patch(told);
    draw();
    try {
      while (!done && table.length < until && running === course) {
        const wanted = { topic, ...asked, ...byKey(asked.key), limit: until - table.length, cursor };
        const answer = await get('messages', wanted, { signal: course.signal });
        if (running !== course) return;
        cursor = answer.next;
        done = answer.done;
        [searched, toSearch, order, byPartition] = [answer.searched_messages, answer.to_search, answer.order, answer.by_partition];
        table.add(answer.rows);
        draw();
      }
    } catch (error) {
      if (running !== course) return;
      patch(told, fault(error.status === 0 ? { ...error, fact: error.fact, remedy: 'Ask again when it is back.' } : error));
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
    const far = asked.key ? `, ${number(searched ?? 0)}${toSearch ? ` of ${number(toSearch)}` : ''} searched` : '';
    const first = { newest_first: ', the newest first', oldest_first: ', the oldest first' }[order] ?? '';
    const sorted = table.length ? `${byPartition ? ', partition after partition' : ''}${first}` : '';
    patch(state, running
      ? [h('progress', { max: toSearch || null, value: toSearch ? Math.min(searched, toSearch) : null, 'aria-label': 'How far the search is' }),
         h('span', {}, many, far),
         h('button', { type: 'button', onclick: () => stop(`Stopped. ${many}${far}`) }, 'Stop')]
      : h('span.quiet', {}, many, far, sorted));
    patch(none, !running && done && !table.length ? nothing() : null);
    const full = table.length >= MOST;
    // At the end of the log there may be newer ones by now.
    const next = done ? 'Look for newer messages' : asked.key ? 'Search on' : order === 'newest_first' ? 'Older messages' : 'More messages';
    patch(more, running || (done && !cursor) ? null : full
      ? h('p.quiet', {}, `${number(MOST)} messages are shown. Begin further on to see others.`)
      : h('button', { type: 'button', onclick: fill }, next));
  }

  /** At read_committed: how many there are that it doesn't show yet. */
  async function tellHidden() {
    const row = asked?.level === LEVELS[0][0] ? await get('topic', { name: topic }).catch((error) => {
      if (isAway(error)) throw error;
      return null;
    }) : null;
    const held = row?.held_back_messages ?? 0;
    patch(hidden, held ? h('p.hidden-note', {}, icon('info'), ` ${count(held, 'message')} behind open transactions ${held === 1 ? 'is' : 'are'} not shown at this level. `,
      h('a', { href: href(['blockers'], { search: topic }) }, 'Who blocks them')) : null);
  }

  function nothing() {
    if (asked.key) return empty('No message has this key.', 'It is compared whole. Bytes are written as 0x00ff.');
    const level = asked.level === LEVELS[0][0] ? 'At this level no message of an open or aborted transaction is shown.' : '';
    if (asked.from.startsWith('@')) return empty('No message was published then or later.', level);
    if (asked.from.includes(':')) return empty(`There are no messages from ${asked.from} on.`, 'It is beyond the end, or a position of another partition.');
    return empty('There are no messages here.', level);
  }

  async function whole(row) {
    const answer = await get('messages', { topic, level: asked.level, partition: row.partition, position: `${row.position}:${row.index}`, full: 1 });
    if (answer.rows.length) return answer.rows[0];
    throw { fact: 'The message is not there any more.', remedy: '' };
  }

  const resized = () => table?.draw();
  window.addEventListener('resize', resized);
  start();
  return {
    element: h('section.messages', { 'aria-label': 'Messages', own: true }, form, told, hidden, state, found, none, more),
    update: tellHidden,
    close() {
      window.removeEventListener('resize', resized);
      running?.abort();
      running = null;
    },
  };
}
