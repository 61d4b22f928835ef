"""Messages about groups that the library lacks, in the form in which it has all others.

ConsumerGroupDescribe is of KIP-848. Field names, types and order are the protocol's (API key 69, version 0).
"""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage


class ConsumerGroupDescribeRequest(ApiMessage, load_json=__name__):
    """Asks the coordinator of groups of the new protocol for their members."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=__name__):
    """Its answer."""
