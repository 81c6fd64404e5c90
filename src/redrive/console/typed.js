// Search fields whose text is in the address.

import { useEffect, useRef, useState } from "./lib.js";
import { useRested } from "./resource.js";
import { query, setQuery } from "./router.js";

/**
 * What is typed, and what is called with more of it. It is in the address, under that name, once it has rested; where the
 * address changes otherwise (Back, a link), the field follows.
 * @param {string} name
 * @param {{wait?: number, also?: import("./api.js").Parameters}} [options] also: what else changes in the address with it
 * @returns {[string, (text: string) => void]}
 */
export function useTyped(name, { wait = 250, also = {} } = {}) {
  const asked = query.value.get(name) ?? "";
  const [typed, setTyped] = useState(asked);
  const rested = useRested(typed.trim(), wait);
  const known = useRef(asked); // of the address, by this field
  useEffect(() => {
    if (asked === known.current) return;
    known.current = asked;
    setTyped(asked);
  }, [asked]);
  useEffect(() => {
    if (rested === known.current) return;
    known.current = rested;
    setQuery({ [name]: rested, ...also });
  }, [rested]);
  return [typed, setTyped];
}
