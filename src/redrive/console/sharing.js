// One stream for all tabs of a browser that came in with the same login. A browser has six connections to a server that
// speaks HTTP/1.1, and a stream keeps one: the tab that has the lock follows the server, and tells the others.

const ASK = "how does it stand?";

/**
 * Leads as soon as no other tab does, until `stop`; until then it is told what the leading tab tells.
 * @param {AbortSignal} stop
 * @param {string} login what we came in with: tabs of others, who may know other things, share nothing with us
 * @param {{lead: (tell: (news: any) => void) => Promise<unknown>, told: (news: any) => void, standing: () => any}} acts
 *   standing: what a tab is told that comes later
 */
export async function share(stop, login, { lead, told, standing }) {
  if (!navigator.locks) return lead(() => undefined); // plain http to another machine: each tab follows by itself
  const name = await named(login);
  if (stop.aborted) return;
  const channel = new BroadcastChannel(name);
  let leads = false;
  const tell = (/** @type {any} */ news) => channel.postMessage(news);
  channel.onmessage = ({ data }) => {
    if (data !== ASK) leads || told(data);
    else if (leads) tell(standing());
  };
  tell(ASK);
  try {
    await navigator.locks.request(name, { signal: stop }, () => {
      leads = true;
      return lead((news) => stop.aborted || tell(news));
    });
  } catch (error) {
    if (!stop.aborted) throw error;
  } finally {
    channel.close();
  }
}

/** The name of the lock and the channel: of these files, and of a login, which it does not give away. */
async function named(/** @type {string} */ login) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(import.meta.url + login));
  return `redrive-${[...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
