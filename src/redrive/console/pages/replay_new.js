// New replay: not written yet.

import { html } from "../lib.js";
import { useTitle } from "../router.js";
import { Empty, Head } from "../ui.js";

export default function Page() {
  useTitle("New replay");
  return html`<${Head} title="New replay" /><${Empty} title="This page is not written yet"><//>`;
}
