/**
 * Moving a subscription: a place is chosen, what it means is shown for each partition, and only that is carried out.
 *
 * A preview holds for the epoch it was made in. If somebody else moves the subscription meanwhile, it is worth nothing,
 * and the service refuses what was built on it.
 */

import { post } from './api.js';
import { ask } from './dialog.js';
import { h, patch, say } from './dom.js';
import { count, number } from './format.js';
import { fault, icon } from './parts.js';
import { isPosition, placeFields } from './place_fields.js';

const MOST_SHOWN = 200;

/** Return {element, follow(row), close()}; `follow` hears of the subscription as it is now, `sought()` is called after. */
export function seekPanel({ topic, name, sought }) {
  const told = h('div', { role: 'alert' });
  const outcome = h('div');
  const positions = positionFields(() => forget());
  const place = placeFields({ name: 'seek-to', label: 'To', given: 'earliest', changed: () => forget(), positions: positions.element });
  const look = h('button', { type: 'submit' }, 'Preview');
  const form = h('form.toolbar', { onsubmit: preview, novalidate: true }, place.element, look);
  const element = h('details.seek', { own: true }, h('summary', {}, 'Seek: deliver messages again, or skip some'), form, told, outcome);
  let found = null;
  let asking = null;

  function forget(why = null) {
    asking?.abort();
    found = null;
    patch(told, why ? fault(why) : null);
    draw();
  }

  function goal() {
    if (place.kind() === 'time') return { time_ms: place.ms() };
    if (place.kind() === 'position') return { positions: positions.value() };
    return { at: place.kind() };
  }

  async function preview(event) {
    event.preventDefault();
    const problem = place.problem() ?? (place.kind() === 'position' ? positions.problem() : null);
    forget(problem);
    if (problem) return;
    const mine = (asking = new AbortController());
    const to = goal();
    look.classList.add('busy');
    try {
      const answer = await post('subscriptions/preview', { topic, name, to }, { signal: mine.signal });
      if (mine !== asking || mine.signal.aborted) return;
      found = { ...answer, to };
      draw();
      say(summary(found));
    } catch (error) {
      if (!mine.signal.aborted) patch(told, fault(error));
    } finally {
      if (mine === asking) look.classList.remove('busy');
    }
  }

  function draw() {
    patch(outcome, found ? previewed(found, confirm) : null);
  }

  async function confirm() {
    const held = found;
    let stale = null;
    const answer = await ask({
      title: `Move subscription “${name}”?`,
      body: [
        h('p', {}, summary(held)),
        held.skipped_messages ? h('p', {}, icon('warning'), ` ${count(held.skipped_messages, 'message')} will never be delivered to it.`) : null,
        held.to.at === 'latest' ? h('p', {}, 'What is published until you confirm is skipped, too.') : null,
        h('p.quiet', {}, 'Its consumers, and streams that read it, go on from there. What is acknowledged of messages delivered before is ignored.'),
      ],
      act: act(held),
      danger: true,
      run: async () => {
        const done = await post('subscriptions/seek', { topic, name, to: held.to, epoch: held.epoch }).catch((error) => {
          stale = error.code === 'STALE_EPOCH' ? error : null;
          throw error;
        });
        return { done };
      },
    });
    if (stale && !answer) forget(stale);
    if (!answer) return;
    forget();
    patch(outcome, h('p.done', { role: 'status' }, icon('ok'), ` It was moved, and is in epoch ${number(answer.done.epoch)}.`));
    say(`It was moved, and is in epoch ${number(answer.done.epoch)}.`);
    // The button that led here is gone.
    look.focus({ preventScroll: true });
    sought();
  }

  return {
    element,
    follow({ epoch }) {
      // What the page is told may be a second older than the preview.
      if (!found || found.epoch >= epoch || document.querySelector('dialog[open]')) return;
      forget({ fact: `The subscription was moved meanwhile: it is in epoch ${number(epoch)}.`, remedy: 'Preview again.' });
    },
    close: () => asking?.abort(),
  };
}

/** What a seek will do, in a sentence. */
function summary({ repeated_messages: repeated, skipped_messages: skipped }) {
  if (!repeated && !skipped) return 'No message will be delivered again, and none will be skipped.';
  const parts = [];
  if (repeated) parts.push(`${count(repeated, 'message')} will be delivered again`);
  if (skipped) parts.push(`${number(skipped)}${repeated ? '' : skipped === 1 ? ' message' : ' messages'} will be skipped`);
  return `${parts.join(', ')}.`;
}

/** The same in short, as a button names it. */
function act({ repeated_messages: repeated, skipped_messages: skipped }) {
  if (!repeated && !skipped) return 'Seek: nothing moves, a new epoch begins';
  if (!repeated) return `Seek: ${count(skipped, 'message')} will be skipped`;
  return `Seek: ${count(repeated, 'message')} will be delivered again${skipped ? `, ${number(skipped)} skipped` : ''}`;
}

function previewed(found, confirm) {
  const { partitions_moving: moving, partitions_total: total } = found;
  const shown = found.partitions.filter((row) => row.from !== row.to || row.repeated).slice(0, MOST_SHOWN);
  return h('div.previewed', {},
    h('p.summary', {}, h('strong', {}, summary(found)),
      h('span.quiet', {}, ` ${number(moving)} of ${count(total, 'partition')} ${moving === 1 ? 'moves' : 'move'}.`)),
    (found.warnings ?? []).map((text) => h('p.warned', {}, icon('warning'), ' ', text)),
    moving ? h('div.scroll', {}, h('table.seek-partitions', {}, h('caption.unseen', {}, 'What the seek does on each partition'),
      h('thead', {}, h('tr', {}, ['Partition', 'From', 'To', 'Delivered again', 'Skipped'].map((title, at) =>
        h('th', { scope: 'col', class: at > 2 ? 'end' : null }, title)))),
      h('tbody', {}, shown.map((row) => h('tr', { key: row.partition },
        h('th', { scope: 'row' }, number(row.partition)),
        h('td', {}, h('code', {}, row.from)), h('td', {}, h('code', {}, row.to)),
        h('td.end', {}, number(row.repeated)), h('td.end', {}, number(row.skipped)))))),
    moving > shown.length ? h('p.quiet', {}, `and ${count(moving - shown.length, 'other partition')}`) : null) : null,
    h('div.acts', {}, h('button.danger', { type: 'button', onclick: confirm }, `${act(found)} …`)));
}

/** Positions, each with its partition: rows that can be added and taken away. */
function positionFields(changed) {
  const rows = h('span.positions');
  const add = h('button.plain', { type: 'button', onclick: () => addRow() }, 'Add a partition');
  const element = h('span.position-fields', {}, rows, add);

  function addRow() {
    const partition = h('input', { 'aria-label': 'Partition', inputmode: 'numeric', size: 5, autocomplete: 'off',
      value: String(rows.childElementCount), oninput: changed });
    const position = h('input', { 'aria-label': 'Position', size: 14, placeholder: '12:40', autocomplete: 'off', oninput: changed });
    const away = h('button.plain', { type: 'button', 'aria-label': 'Take this partition away', onclick: take }, '✕');
    const row = h('span.position', {}, partition, position, away);
    Object.assign(row, { partition, position });
    rows.append(row);
    if (element.isConnected) partition.focus();

    function take() {
      if (rows.childElementCount > 1) row.remove();
      changed();
      add.focus();
    }
  }

  function problem() {
    const named = new Set();
    for (const { partition, position } of rows.children) {
      const [number_, at] = [partition.value.trim(), position.value.trim()];
      if (!/^\d{1,9}$/.test(number_)) return { fact: `“${number_}” is no partition.`, remedy: 'Type its number.' };
      if (named.has(Number(number_))) return { fact: `Partition ${number_} is named twice.`, remedy: 'Take one away.' };
      if (!isPosition(at)) return { fact: `“${at}” is no position.`, remedy: 'Type one such as 12:40, or a message’s id such as 12:40:3.' };
      named.add(Number(number_));
    }
    return null;
  }

  addRow();
  return {
    element,
    problem,
    value: () => Object.fromEntries([...rows.children].map(({ partition, position }) => [String(Number(partition.value)), position.value.trim()])),
  };
}
