"""Rows of the data set as records."""

from __future__ import annotations

import json
from itertools import islice

from onceover_lab.demo import flights

ROW = {
    "year": "2013", "month": "1", "day": "1", "dep_time": "517", "sched_dep_time": "515", "dep_delay": "2",
    "arr_time": "830", "sched_arr_time": "819", "arr_delay": "11", "carrier": "UA", "flight": "1545",
    "tailnum": "N14228", "origin": "EWR", "dest": "IAH", "air_time": "227", "distance": "1400", "hour": "5",
    "minute": "15", "time_hour": "2013-01-01T10:00:00Z",
}  # fmt: skip


def test_flight_is_keyed_by_tail_number_and_dated_by_its_scheduled_departure() -> None:
    """Key, value and timestamp come from the row alone."""
    flight = flights.to_flight(ROW)
    assert flight.topic is flights.EWR
    assert flight.key == b"N14228"
    assert flight.timestamp_ms == 1_357_035_300_000  # 2013-01-01T10:15:00Z
    assert json.loads(flight.value)["distance"] == 1400
    assert json.loads(flight.value)["time_hour"] == "2013-01-01T10:00:00Z"
    assert flight.headers == ()


def test_missing_tail_number_becomes_a_null_key_and_a_json_null() -> None:
    """NA is no text."""
    flight = flights.to_flight({**ROW, "tailnum": "NA"})
    assert flight.key is None
    assert json.loads(flight.value)["tailnum"] is None


def test_cancelled_flight_has_its_own_topic_and_a_repeated_and_a_null_header() -> None:
    """What has no departure was cancelled."""
    flight = flights.to_flight({**ROW, "dep_time": "NA", "arr_delay": "NA"})
    assert flight.topic is flights.CANCELLED
    assert flight.headers == (("airport", b"EWR"), ("airport", b"IAH"), ("departed", None))


def test_departed_flight_without_an_arrival_is_unfinished() -> None:
    """Near-miss of cancelled: it left."""
    assert flights.to_flight({**ROW, "arr_delay": "NA"}).topic is flights.UNFINISHED


def test_data_set_is_complete() -> None:
    """The real file: every flight, every topic, in order."""
    first = list(islice(flights.read_flights(), 3))
    assert [flight.key for flight in first] == [b"N14228", b"N24211", b"N619AA"]
    seen = {flight.topic.name for flight in flights.read_flights(5_000)}
    assert seen == {topic.name for topic in flights.TOPICS}
    assert sum(1 for _ in flights.read_flights(10)) == 10


def test_topics_use_every_codec() -> None:
    """Five topics, five codecs, one of them fed in transactions."""
    assert {topic.codec for topic in flights.TOPICS} == {"lz4", "zstd", "gzip", "snappy", "none"}
    assert [topic.name for topic in flights.TOPICS if topic.transactional] == ["flights.lga"]
