"""Which ACLs cannot follow the source. Pure."""

from __future__ import annotations

from enum import auto

from onceover.codes import Code


class AclCode(Code):
    """Remarks of plans about ACLs, beside what clusters answer."""

    ACL_DENIES_ONCEOVER = auto()
    ACL_WITHHELD = auto()
    ACLS_OPEN = auto()
    # A need of ``status``, too: somebody may read on the target what the source forbids.
    ACLS_STAY = auto()
