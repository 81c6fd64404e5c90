// Tokens: who may come in, as what, of what, and until when. The text of one is shown once.

import { del, part, post } from "../api.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { useTitle } from "../router.js";
import { may, me, serverNow } from "../state.js";
import { Button, Copy, Dialog, Empty, Field, FormDialog, Head, Panel, Pill, Table, Time, confirm, toast } from "../ui.js";
import { Text } from "../tree.js";

const DAY = 86_400;

export default function Tokens() {
  useTitle("Tokens");
  const tokens = useResource("tokens", {}, { every: 15 });
  const [asks, setAsks] = useState(false);
  const [made, setMade] = useState(/** @type {any} */ (null));
  const create = async ({ name, role, sources, tenants, systems, days, unmask }) => {
    const scope = { sources: listed(sources), tenants: listed(tenants), systems: listed(systems) };
    const expires = Number(days) ? Number(days) * DAY : null;
    setMade(await post("tokens", { name, role, scope, expires_in_seconds: expires, ...(unmask ? { unmask } : {}) }));
    tokens.reload();
  };
  const rotate = (token) => confirm({
    title: `A new secret for ${token.name}?`, verb: "Rotate", body: html`<${Field} label="Hours that the old one opens beside it"><input type="number" name="hours" min="0" max="8760" defaultValue="24" /><//>`,
    act: async ({ hours }) => {
      setMade(await post(`tokens/${part(token.id)}/rotate`, { overlap_seconds: 3600 * Number(hours) }));
      tokens.reload();
    },
  });
  const revoke = (token) => confirm({
    title: `Revoke ${token.name}?`, verb: "Revoke", danger: true, body: html`<p>The next request with it is refused, on every server. That cannot be undone.</p>`,
    act: async () => {
      const after = await del(`tokens/${part(token.id)}`);
      toast(after.revoked ? "Revoked" : "It still opens");
      tokens.reload();
    },
  });
  return html`<${Head} title="Tokens" about="One for each person and program makes the trail worth reading">${may("admin") && html`<button type="button" class="button primary" onClick=${() => setAsks(true)}>New token…</button>`}<//>
    <${Panel} id="tokens" flush from=${tokens} empty=${(rows) => !rows.length && html`<${Empty} title="No token yet">You came in with the one-time token of the address that the server printed. Make one for each person and program: the trail says who did what.<//>`}>
      ${(rows) => html`<${Table} caption="Tokens" rows=${rows} columns=${columns(rotate, revoke)} />`}<//>
    ${asks && html`<${NewToken} create=${create} close=${() => setAsks(false)} />`}
    ${made && html`<${Dialog} title="Its text is shown only now" must close=${() => {}}><p>Send it as <code>Authorization: Bearer …</code>. It cannot be had again.</p>
      <p class="row"><code class="line" id="token-text">${made.text}</code> <${Copy} text=${made.text} what="the token" /></p>
      <div class="dialog-acts"><button type="button" class="button primary" onClick=${() => setMade(null)}>I have it</button></div><//>`}`;
}

const listed = (text) => text.split(",").map((one) => one.trim()).filter(Boolean);
const scopeOf = ({ scope }) => [["sources", scope?.sources], ["tenants", scope?.tenants], ["systems", scope?.systems]].filter(([, names]) => names?.length).map(([kind, names]) => `${kind} ${names.join(", ")}`).join("; ") || "everything";
const stateOf = (token) => (token.revoked ? "revoked" : token.expires_at && Date.parse(token.expires_at) <= serverNow() ? "expired" : token.not_before && Date.parse(token.not_before) > serverNow() ? "not yet" : "active");

const columns = (rotate, revoke) => [
  { name: "name", title: "Name", kind: "grow", cell: (token) => html`<strong><${Text} value=${token.name} /></strong> <code class="faint">${token.id}</code>` },
  { name: "role", title: "Role", label: "role", cell: (token) => `${token.role}${token.may_unmask ? ", may unmask" : ""}` },
  { name: "state", title: "State", cell: (token) => html`<${Pill} state=${stateOf(token)} />` },
  { name: "of", title: "Of", kind: "wrap", label: "of", cell: (token) => scopeOf(token) },
  { name: "used", title: "Last used", kind: "nowrap faint", label: "last used", cell: (token) => (token.last_used ? html`<${Time} at=${token.last_used} />` : "never") },
  { name: "expires", title: "Expires", kind: "nowrap faint", label: "expires", cell: (token) => token.expires_at && html`<${Time} at=${token.expires_at} coming />` },
  { name: "acts", title: html`<span class="unseen">Acts</span>`, kind: "acts", cell: (token) => !token.revoked && html`<button type="button" class="button" aria-label=${`Rotate ${token.name}`} onClick=${() => rotate(token)}>Rotate…</button> <button type="button" class="button" aria-label=${`Revoke ${token.name}`} onClick=${() => revoke(token)}>Revoke…</button>` },
];

const NewToken = ({ create, close }) => html`<${FormDialog} title="New token" verb="Make it" act=${create} close=${close}>
  <${Field} label="Name" about="who or what will use it"><input type="text" name="name" required maxlength="200" autocomplete="off" /><//>
  <${Field} label="Role"><select name="role"><option value="viewer">viewer: sees</option><option value="operator">operator: also retries, replays, archives</option><option value="admin">admin: also tokens, audit, settings</option></select><//>
  <${Field} label="Sources" about="patterns such as mail.*, with commas; empty: all"><input type="text" name="sources" /><//>
  <${Field} label="Tenants" about="empty: all"><input type="text" name="tenants" /><//>
  <${Field} label="Systems" about="transports; empty: all"><input type="text" name="systems" /><//>
  <${Field} label="Days until it expires" about="empty: never"><input type="number" name="days" min="1" max="3660" /><//>
  ${me.value?.may_unmask && html`<label class="row"><input type="checkbox" name="unmask" /> May see secrets, one letter at a time and with a reason</label>`}<//>`;
