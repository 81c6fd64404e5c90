// Settings: what is in force, and where each value comes from. Secrets are masked by the server.

import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { useTitle } from "../router.js";
import { Chip, Empty, Head, Panel, Table } from "../ui.js";
import { Text } from "../tree.js";

export default function Settings() {
  useTitle("Settings");
  const settings = useResource("settings");
  const [text, setText] = useState("");
  const [all, setAll] = useState(false);
  const rowsOf = (found) => (Array.isArray(found) ? found : found.settings ?? []).filter((one) => (all || one.from !== "default" || text) && one.name.includes(text.trim()));
  const said = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const columns = [
    { name: "name", title: "Setting", kind: "wrap first", cell: (one) => html`<code>${one.name}</code>${one.about && html`<span class="message">${one.about}</span>`}` },
    { name: "value", title: "Value", kind: "grow", cell: (one) => html`<code><${Text} value=${said(one.value) ?? ""} /></code>` },
    { name: "from", title: "From", label: "from", cell: (one) => html`<${Chip} data-tone=${one.from === "default" ? "" : "blue"}>${one.from}<//>${one.place && html` <span class="faint"><${Text} value=${one.place} /></span>`}` },
  ];
  return html`<${Head} title="Settings" about="What is in force at this server, and where it comes from" />
    <${Panel} id="settings" flush from=${settings} aside=${html`<div class="filters" role="search"><input type="search" data-search placeholder="Name" aria-label="Search settings" value=${text} onInput=${(event) => setText(event.target.value)} />
        <label class="row"><input type="checkbox" checked=${all} onChange=${(event) => setAll(event.target.checked)} /> Also defaults</label></div>`}
      empty=${(found) => !rowsOf(found).length && html`<${Empty} title=${text ? "No setting has that name" : "Everything is as it is by default"} />`}>
      ${(found) => html`<${Table} caption="Settings" rows=${rowsOf(found)} id=${(one) => one.name} columns=${columns} />`}<//>`;
}
