"""Hooks of scripts/fuzz-http: nobody has the patience for a wait of a minute, hundreds of times."""

import schemathesis


def short(text):
    """A wait that is understood is made short; one that is not stays as it is."""
    return "0" if isinstance(text, (int, str)) and str(text).isascii() and str(text).isdigit() else text


@schemathesis.hook
def before_call(context, case, kwargs):
    query = case.query
    if isinstance(query, dict) and "wait" in query:
        query["wait"] = short(query["wait"])
    headers = case.headers
    if headers is not None and "Prefer" in headers:
        name, _, value = str(headers["Prefer"]).partition("=")
        headers["Prefer"] = f"{name}={short(value)}" if value else name
    body = case.body
    if isinstance(body, dict) and "waitMs" in body:
        body["waitMs"] = 0
