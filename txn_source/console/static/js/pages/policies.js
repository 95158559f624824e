/** Policies as they hold for a topic, a namespace or the broker, each with where its value comes from. */

import { get } from '../api.js';
import { h, patch } from '../dom.js';
import { bytes, count, duration, href } from '../format.js';
import { badge, heading } from '../parts.js';
import { topicField } from '../topic_field.js';

const SCOPES = [['broker', 'Broker'], ['namespace', 'Namespace'], ['topic', 'Topic']];
const SETTERS = ['topic', 'namespace', 'broker'];

/** The page: of a scope that is chosen in the address. */
export function page({ query }) {
  const topic = query.get('topic');
  const namespace = query.get('namespace');
  const scope = topic !== null ? 'topic' : namespace !== null ? 'namespace' : 'broker';
  const shown = scope === 'topic' && !topic || scope === 'namespace' && !namespace ? null : panel({ topic, namespace });
  const field = scope === 'topic' ? topicField(topic, (name) => href(['policies'], { topic: name })) : null;
  const title = scope === 'broker' ? 'Policies of the broker' : `Policies of ${topic ?? namespace}`;
  return {
    title: 'Policies',
    element: h('div', {}, heading('Policies', { about: 'A topic’s policy is stronger than its namespace’s, and that one than the broker’s.' }),
      h('nav.tabs', { 'aria-label': 'Of what' }, SCOPES.map(([name, text]) =>
        h('a', { href: name === 'broker' ? '#/policies' : `#/policies?${name}=`, 'aria-current': name === scope ? 'page' : null }, text))),
      field?.element, scope === 'namespace' ? namespaceField(namespace) : null, shown?.element),
    async update() {
      await shown?.update();
    },
    close: () => field?.close(),
  };
}

function namespaceField(namespace) {
  const field = h('input', { name: 'namespace', value: namespace, required: true, placeholder: 'public/default', size: 30,
    autocomplete: 'off', spellcheck: 'false' });
  const choose = (event) => {
    event.preventDefault();
    location.hash = href(['policies'], { namespace: field.value.trim() });
  };
  return h('form.toolbar', { onsubmit: choose, 'aria-label': 'Namespace' }, h('label', {}, 'Namespace ', field), h('button', { type: 'submit' }, 'Choose'));
}

/** The policies of one scope: a topic, a namespace, or (neither) the broker. */
export function panel({ topic = null, namespace = null }) {
  const element = h('div', { own: true });
  const setters = topic ? SETTERS : namespace ? SETTERS.slice(1) : SETTERS.slice(2);

  async function update() {
    const { rows } = await get('policies', { topic, namespace });
    patch(element, h('div.scroll', {}, h('table.policies', {}, h('caption.unseen', {}, 'Policies'),
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Policy'), h('th', { scope: 'col' }, 'In force'), h('th', { scope: 'col' }, 'From'),
        setters.map((name) => h('th.wide', { scope: 'col' }, h('span.unseen', {}, 'Set for the '), name)),
        h('th.wide', { scope: 'col' }, 'Default'))),
      h('tbody', {}, rows.map((row) => h('tr', { key: row.name },
        h('th', { scope: 'row' }, h('code', {}, breakable(row.name)), h('div.doc', {}, row.doc)),
        h('td.value', {}, h('strong', {}, shown(row.value, row.unit))),
        h('td', {}, row.source === 'default' ? h('span.quiet', {}, 'default') : badge(row.source, 'ok')),
        setters.map((name) => h('td.wide', { class: name === row.source ? 'in-force' : null }, shown(row.set?.[name], row.unit, '–'))),
        h('td.wide', { class: row.source === 'default' ? 'in-force' : null }, shown(row.default, row.unit)))))))) ;
  }

  return { element, update, close() {} };
}

/** A name that may be broken before each of its words. */
const breakable = (name) => name.split('_').flatMap((part, at) => (at ? [h('wbr'), `_${part}`] : [part]));

/** A value with its unit; `unset` where it is absent. */
function shown(value, unit, unset = 'unset') {
  if (value === null || value === undefined) return h('span.quiet', {}, unset);
  if (unit === 's') return h('span', { title: `${value} s` }, value < 60 ? `${value} s` : duration(value * 1000));
  if (unit === 'bytes') return h('span', { title: count(value, 'byte') }, bytes(value));
  return h('bdi', {}, String(value));
}
