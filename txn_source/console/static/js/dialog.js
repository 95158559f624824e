/** A question before something is changed: what will happen, and a button that names the act. */

import { h, patch } from './dom.js';
import { fault } from './parts.js';

/** Pressing the button again would be refused again: forbidden, gone, changed meanwhile. */
const FINAL = new Set([403, 404, 409]);

/**
 * Ask, and do it.
 *
 * Args (one object): `title`; `body`: children, or a function that returns them; `act`: what the button says, the act
 * with its object ("Abort transaction 123"); `danger`: it can't be taken back; `run`: an async function that does it.
 * While it runs nothing can be pressed twice; if it fails the dialog stays and tells the error (the
 * button tries again, unless that is in vain). Returns what `run` returned, or null if it was left. A poll of the page doesn't touch it.
 */
export function ask({ title, body, act, danger = false, run }) {
  return new Promise((resolve) => {
    let result = null;
    let running = false;
    const told = h('div', { role: 'alert' });
    const go = h('button', { type: 'submit', class: danger ? 'danger' : 'primary' }, act);
    const leave = h('button', { type: 'button', onclick: () => running || dialog.close() }, 'Cancel');
    const form = h('form', { method: 'dialog', onsubmit: submit }, h('h2', { id: 'dialog-title' }, title),
      h('div.dialog-body', {}, typeof body === 'function' ? body() : body), told,
      h('div.dialog-acts', {}, leave, go));
    const dialog = h('dialog', { 'aria-labelledby': 'dialog-title' }, form);

    async function submit(event) {
      event.preventDefault();
      if (running) return;
      running = true;
      go.setAttribute('aria-disabled', 'true');
      go.classList.add('busy');
      patch(told);
      try {
        result = (await run()) ?? true;
        dialog.close();
      } catch (error) {
        patch(told, fault(error));
        if (FINAL.has(error.status)) {
          go.hidden = true;
          leave.textContent = 'Close';
          leave.focus();
        }
      } finally {
        running = false;
        go.removeAttribute('aria-disabled');
        go.classList.remove('busy');
      }
    }

    // Escape while it runs would hide what came of it.
    dialog.oncancel = (event) => {
      if (running) event.preventDefault();
    };
    dialog.onclose = () => {
      dialog.remove();
      resolve(result);
    };
    document.body.append(dialog);
    dialog.showModal();
    // Enter by habit must not end a transaction.
    (danger ? leave : go).focus();
  });
}

/** Show something with a button to close it. */
export function show(title, ...children) {
  const dialog = h('dialog', { 'aria-labelledby': 'dialog-title', onclose: () => dialog.remove() },
    h('h2', { id: 'dialog-title' }, title), h('div.dialog-body', {}, children),
    h('div.dialog-acts', {}, h('button.primary', { type: 'button', onclick: () => dialog.close() }, 'Close')));
  document.body.append(dialog);
  dialog.showModal();
}

/** Whether a question is open. */
export const asking = () => document.querySelector('dialog[open]') !== null;
