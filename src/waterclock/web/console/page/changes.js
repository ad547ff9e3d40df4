// What one may have a relay do with a message by hand. Each is confirmed first; what became of it is the relay's own answer.

import {h, moment} from "./parts.js";

/** The buttons of a message. One without an id cannot be named; a series is not moved. */
export function actions(at, message, done) {
  if (!message.id) return "has no id";
  const button = (text, about, verb) => h("button", {type: "button", "aria-label": `${text} ${message.id}`, onclick: () => confirm(at, message, text, about, verb, done)}, text);
  const all = [button("cancel", "All that is pending under this id in its partition is cancelled.", "cancel")];
  if (!message.recurs) {
    all.push(button("deliver now", "What is pending under this id is replaced by the same message, due now.", "now"));
    all.push(button("move", "What is pending under this id is replaced by the same message, due then.", "move"));
  }
  return h("span", null, ...all);
}

function confirm(at, message, text, about, verb, done) {
  const when = h("input", {type: "datetime-local", step: "1", required: true, value: new Date(message.due_ms - new Date(message.due_ms).getTimezoneOffset() * 60000).toISOString().slice(0, 19)});
  const said = h("p", {role: "status"}), go = h("button", {type: "submit"}, text), back = h("button", {type: "button"}, "leave it");
  const form = h("form", {method: "dialog"},
    h("p", null, `${text}: ${message.id}, for ${message.target}, due ${moment(message.due_ms)}. ${about}`),
    verb === "move" ? h("label", null, "due ", when) : null, said, h("div.buttons", null, back, go));
  const dialog = h("dialog", {"aria-label": `${text} ${message.id}`}, form);
  back.onclick = () => dialog.close();
  dialog.onclose = () => (dialog.remove(), done());
  form.onsubmit = async event => {
    event.preventDefault();
    go.disabled = true;
    said.textContent = "The relay is asked …";
    const at_ms = verb === "now" ? Date.now() : new Date(when.value).getTime();
    said.textContent = await change(at, {verb: verb === "cancel" ? verb : "move", origin: message.origin, id: message.id, due_ms: message.due_ms, at_ms});
    go.hidden = true;
    back.textContent = "close";
    back.focus();
  };
  document.body.append(dialog);
  dialog.showModal();
  back.focus();
}

/** The relay's answer, or why there is none. */
async function change(at, asked) {
  try {
    const answer = await fetch(`change/${at}`, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(asked)});
    if (!answer.ok) return (await answer.text()).trim();
    const {outcome, count} = await answer.json();
    return `${outcome}, ${count} ${count === 1 ? "message" : "messages"}`;
  } catch (error) {
    return `Whether it was done is not known: ${error.message}`;
  }
}
