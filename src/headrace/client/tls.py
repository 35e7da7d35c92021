"""Why TLS did not come about, as a person reads it."""

from __future__ import annotations

import ssl
from typing import Final

_OTHER_NAME: Final = frozenset({62, 64})
"""Host name and IP address (X509_V_ERR of OpenSSL)."""

_OTHER_TIME: Final = frozenset({9, 10})
"""Not yet valid, expired."""


def why_no_tls(error: ssl.SSLError, trust: str, plain: str) -> str:
    """What is so, and behind it, in a second line, what to do.

    `trust` says how to name an authority, `plain` what to do where no TLS is spoken.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = trust
        if error.verify_code in _OTHER_NAME:
            remedy = "reach it by a name that its certificate has"
        elif error.verify_code in _OTHER_TIME:
            remedy = "give it another certificate, or set the clock here"
        return f"its certificate is refused: {error.verify_message.rstrip('.')}\n{remedy}"
    reason = (error.reason or "").lower().replace("_", " ")
    if "alert" in reason:
        asked = "does it ask for a certificate, or for another version of TLS?"
        return f"it refuses TLS with this client: {reason}\n{asked}"
    return f"no TLS is spoken there\n{plain}"
