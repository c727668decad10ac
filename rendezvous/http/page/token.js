// SPDX-License-Identifier: Apache-2.0
//
// The token that the user has typed. It stays in this variable until the page is closed: the page
// writes it to no cookie and no storage.

let token = "";

export function hasToken() {
  return token !== "";
}

export function setToken(text) {
  token = text.trim();
}

/// Options of fetch() that show the token, if there is one. Without one the browser may show what
/// it has itself: a certificate, or a password that the user gave it.
export function authorization() {
  return token === ""
    ? {}
    : {credentials: "omit", headers: {Authorization: `Bearer ${token}`}};
}
