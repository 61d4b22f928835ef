"""What workers say is shown without values of a configuration: a text for each way in which one is said."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.connectors.workers.masking import masked

SECRET = "hunter2-of-the-database"
URL = f"jdbc:postgresql://app:{SECRET}@db.example/orders"
JAAS = f'a.b.PlainLoginModule required username="app" password="{SECRET}";'
PEM = "-----BEGIN KEY-----\nc2VjcmV0IGtleQ==\n-----END KEY-----"


@pytest.mark.parametrize(
    ("text", "config", "shown"),
    [
        # As Kafka words it, also where the workers alone know the value.
        (
            f"Invalid value {SECRET} for configuration until: Not a number of type LONG",
            {"until": "${file:/etc/secrets:until}"},
            "Invalid value *** for configuration until: Not a number of type LONG",
        ),
        (
            f"Invalid value {SECRET} for configuration a.b: Class {SECRET} could not be found.",
            {},
            "Invalid value *** for configuration a.b: Class *** could not be found.",
        ),
        (
            f"errors:\nInvalid value {PEM} for configuration key: none\nInvalid value x for configuration y",
            {},
            "errors:\nInvalid value *** for configuration key: none\nInvalid value *** for configuration y",
        ),
        # As a plugin words it.
        (f"cannot open {URL}", {"connection.url": URL}, "cannot open ***"),
        (f"login with {SECRET} refused", {"connection.url": URL}, "login with *** refused"),
        (f"login with {SECRET} refused", {"sasl.jaas.config": JAAS}, "login with *** refused"),
        (
            f"login with {SECRET} refused",
            {"jaas": f"a.b required password='{SECRET}';"},
            "login with *** refused",
        ),
        (
            f"login with {SECRET} refused",
            {"jaas": f"a.b required password = {SECRET};"},
            "login with *** refused",
        ),
        (
            f"{SECRET} has no rights",
            {"headers": f"Authorization: Bearer {SECRET}, X: y"},
            "*** has no rights",
        ),
        (f"401 for {SECRET}", {"headers": f"X-Api-Key: {SECRET}"}, "401 for ***"),
        # A password of three words, and one with a quote in it, neither as Kafka wants it.
        (
            "Value not specified for key 'sesame' in JAAS config",
            {},
            "Value not specified for key '***' in JAAS config",
        ),
        # As it is when it is used, of one that an address has in its own way.
        ("no login as p@ss word-77", {"url": "https://me:p%40ss%20word-77@h/x"}, "no login as ***"),
        (
            "no login as open sesame",
            {"url": "jdbc:x://h/db?user=u&password=open%20sesame"},
            "no login as ***",
        ),
        (f"not one of a, {SECRET}", {"keys": f"k1,{SECRET}"}, "not one of a, ***"),
        ("bad line c2VjcmV0IGtleQ==", {"ssl.key": PEM}, "bad line ***"),
        (f"at {URL}", {}, "at jdbc:postgresql://***@db.example/orders"),
        # Half of a value, and one that the workers have put together with what they alone know.
        (
            f"cannot connect with {{user=app, password={SECRET}}}",
            {"connection.url": f"jdbc:postgresql://db.example/orders?user=app&password={SECRET}"},
            "cannot connect with {user=app, password=***}",
        ),
        (
            f"No suitable driver found for jdbc:postgresql://db.example/orders?password={SECRET}&ssl=true",
            {"connection.url": "jdbc:postgresql://db.example/orders?password=${file:/s:p}&ssl=true"},
            "No suitable driver found for ***",
        ),
        (
            f"No suitable driver found for jdbc:postgresql://db.example/orders?password={SECRET}&ssl=true",
            {"connection.url": "${file:/s:url}"},
            "No suitable driver found for jdbc:postgresql://db.example/orders?password=***&ssl=true",
        ),
        (
            f"404 of https://api.example/hooks/{SECRET}/events",
            {"url": "https://api.example/hooks/${file:/s:hook}/events"},
            "404 of ***",
        ),
        (
            f"404 of https://api.example/hooks/{SECRET * 90}/events",
            {"url": "https://api.example/hooks/${file:/s:hook}/events"},
            "404 of ***",
        ),
        (
            f'no login with required username="app" password="{SECRET}";',
            {"jaas": 'required username="${file:/s:user}" password="${file:/s:p}";'},
            "no login with ***",
        ),
        ("pin 1234 is wrong", {"pin": "1234"}, "pin *** is wrong"),
        (f"<{SECRET}>and{SECRET}too", {"password": SECRET}, "<***>and***too"),
        # What says where it reads and writes is shown, and words that values only happen to be.
        (
            "Not authorized to access topics: [orders], at db.example:5432",
            {"topic": "orders", "database.hostname": "db.example", "database.port": "5432", "a": "orders"},
            "Not authorized to access topics: [orders], at db.example:5432",
        ),
        ("batch.size is not a batch", {"kind": "batch"}, "batch.size is not a ***"),
        ("Expected value to be either true or false", {"flag": "true", "n": "1"}, None),
        ("Invalid value: none", {}, None),
        (" for configuration ", {}, None),
    ],
)
def test_no_value_is_shown(text: str, config: dict[str, str], shown: str | None) -> None:
    """And the rest is, in the workers' words."""
    assert masked(text, config) == (text if shown is None else shown)


def test_what_a_reference_stands_for_is_not_shown_where_the_workers_tell_it() -> None:
    """In the errors of other settings, too."""
    config = {"password": "${file:/etc/secrets:password}"}
    assert masked(f"until: no {SECRET}", config, [SECRET]) == "until: no ***"


@given(st.text(max_size=60), st.text(min_size=8, max_size=30), st.text(max_size=60))
def test_a_long_value_is_never_shown(before: str, value: str, behind: str) -> None:
    """Wherever it stands, whatever it is made of."""
    stripped = value.strip()
    text = masked(f"{before}{stripped}{behind}", {"password": value})
    assert len(stripped) < 8 or "***" in stripped or stripped not in text


def test_many_beginnings_without_an_end_take_no_time() -> None:
    """A trace may be a megabyte; quadratic, this would take minutes."""
    assert masked("Invalid value " * 70_000, {}).startswith("Invalid value ")


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("aB-c.d_" * 40_000, {}),
        ("passw." * 40_000, {}),
        ("'" * 40_000, {}),
        ("x", {"url": "passw" * 40_000 + " " * 40_000}),
        ("x", {"url": "Bearer" + " " * 40_000}),
        (
            "https://api.example/" + "x" * 60_000,
            {"url": "https://api.example/${a:b}${a:c};${a:d}x${a:e}x${a:f}/events"},
        ),
    ],
)
def test_a_long_word_takes_no_time(text: str, config: dict[str, str]) -> None:
    """A token in a trace has thousands of characters: seconds would be hours with a few more references."""
    begun = time.process_time()
    assert masked(text, config) == text
    assert time.process_time() - begun < 5
