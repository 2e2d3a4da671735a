/** The end of a link that a person can read: `#head=3.4&filter=previous>0.5`. */

/** @param {[string, string][]} parts names and values */
export function linkOf(parts) {
  return `#${parts.map(([name, value]) => `${name}=${readable(value)}`).join("&")}`;
}

/** @param {string} value */
function readable(value) {
  return encodeURIComponent(value).replace(/%2C/g, ",").replace(/%3A/g, ":").replace(/%40/g, "@").replace(/%3E/g, ">").replace(/%20/g, "+");
}
