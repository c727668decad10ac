// SPDX-License-Identifier: Apache-2.0
//
// The token with which this page reads. It stays in this variable until the page is closed: the
// page writes it to no cookie and no storage.
//
// The page connects again by itself, and shows it to whoever has the daemon's port then. Over plain
// HTTP nobody proves to be the daemon. So the page keeps no token there that can do more than read.

let readingToken = "";

/// Returns why the page does not keep the token; empty: it does.
export function keepToken(text) {
  const token = text.trim();
  const role = /^regroup1\.([a-z]+)\./.exec(token)?.[1] ?? "observer";
  if (role !== "observer" && window.location.protocol !== "https:") {
    return `This is a token of the role ${role}. Over plain HTTP this page reads with one of the role ` +
      "observer only; regroup token --role=observer prints one.";
  }
  readingToken = token;
  return "";
}

/// Options of fetch() that show `token`, if there is one. Without one the browser may show a
/// certificate.
export function authorization(token = readingToken) {
  return token === ""
    ? {}
    : {credentials: "omit", headers: {Authorization: `Bearer ${token}`}};
}
