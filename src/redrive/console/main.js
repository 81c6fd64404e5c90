// Begins: takes the token, asks who we are, shows the page of the address.

import { takeToken } from "./api.js";
import { listen as listenToKeys } from "./keys.js";
import { Layout } from "./layout.js";
import { html, render } from "./lib.js";
import { recognise } from "./live.js";
import { go, listen as listenToLinks } from "./router.js";
import { showScheme } from "./state.js";

takeToken();
showScheme();
listenToLinks();
listenToKeys();
followOldLink();
render(html`<${Layout} />`, /** @type {Element} */ (document.getElementById("app")));
recognise();

/** Alerts that were sent before there were pages name a group as `/#group=…`. */
function followOldLink() {
  const group = new URLSearchParams(location.hash.slice(1)).get("group");
  if (group) go(`/groups/${encodeURIComponent(group)}`, { replace: true });
}
