// Incidents: not written yet.

import { html } from "../lib.js";
import { useTitle } from "../router.js";
import { Empty, Head } from "../ui.js";

export default function Page() {
  useTitle("Incidents");
  return html`<${Head} title="Incidents" /><${Empty} title="This page is not written yet"><//>`;
}
