"""Fixtures, and the table *feature × client × test*."""

import pathlib

import pytest

import broker as brokers
import table
from browser_client import Browser, MqttJsClient
from features import COLUMNS, FEATURES, NOT_APPLICABLE
from model import DEADLINE, V5, V311, Will, unique
from mosquitto_client import Mosquitto
from paho_client import PahoClient

LIBRARY_COLUMNS = [column for column in COLUMNS if not column.startswith("mosquitto")]


def pytest_addoption(parser):
    parser.addoption("--broker", choices=["whimbrel", "mosquitto"], default="whimbrel", help="the broker to test")
    parser.addoption("--table", help="write the table of features, clients and passed tests to this file; an empty cell fails the run")


def pytest_configure(config):
    config.addinivalue_line("markers", "feature(*names, columns=...): rows (and columns) of the table that the test fills")
    config.cells = table.Cells()
    # What tests measured, to be printed at the end.
    config.figures = []


def pytest_generate_tests(metafunc):
    if "column" in metafunc.fixturenames:
        prefix = "mosquitto" if metafunc.module.__name__.startswith("test_mosquitto") else ("paho", "mqttjs")
        metafunc.parametrize("column", [column for column in COLUMNS if column.startswith(prefix)])


def _cells_of(item):
    marker = item.get_closest_marker("feature")
    if marker is None:
        return []
    callspec = getattr(item, "callspec", None)
    columns = marker.kwargs.get("columns") or [callspec.params["column"]]
    return [(name, column) for name in marker.args for column in columns]


def pytest_collection_modifyitems(config, items):
    """Drops what a client cannot do; the table says why."""
    kept, dropped = [], []
    for item in items:
        cells = _cells_of(item)
        unknown = [name for name, _ in cells if name not in FEATURES]
        if unknown:
            raise pytest.UsageError(f"{item.nodeid} names features that features.py does not have: {unknown}")
        (dropped if cells and all(cell in NOT_APPLICABLE for cell in cells) else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=dropped)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call" and report.passed:
        for feature, column in _cells_of(item):
            item.config.cells.add(feature, column, item.path.name, item.originalname)
    return report


def pytest_sessionfinish(session, exitstatus):
    path = session.config.getoption("--table")
    if path and exitstatus == 0:
        pathlib.Path(path).write_text(session.config.cells.render(), encoding="utf-8")
        empty = session.config.cells.empty()
        if empty:
            session.config.pluginmanager.get_plugin("terminalreporter").write_line(f"EMPTY CELLS in the table: {empty}", red=True)
            session.exitstatus = 1


def pytest_terminal_summary(terminalreporter, config):
    for test, figure in config.figures:
        terminalreporter.write_line(f"{test}: {figure}")


@pytest.fixture(scope="session")
def broker(request):
    running = brokers.start(request.config.getoption("--broker"))
    yield running
    assert running.is_alive(), f"the broker ended during the tests; see {running.directory}/broker.log"
    running.stop()


@pytest.fixture(scope="session")
def browser():
    running = Browser()
    yield running
    running.close()


@pytest.fixture
def new_client(request, broker, column):
    """Makes clients of the column's kind, and closes them at the end."""
    made = []
    version = V311 if "311" in column else V5

    def make():
        if column.startswith("paho"):
            client = PahoClient(broker, version)
        else:
            transports = ("wss", "ws") if column.endswith("wss") else ("ws", "wss")
            client = MqttJsClient(broker, request.getfixturevalue("browser"), version, transports)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


@pytest.fixture
def connected(new_client):
    """Makes a client and connects it."""

    def make(**arguments):
        client = new_client()
        client.connect(**arguments)
        return client

    return make


@pytest.fixture
def mosquitto(broker, column):
    """mosquitto's tools, in the column's version."""
    tools = Mosquitto(broker, V311 if "311" in column else V5)
    yield tools
    tools.close()


@pytest.fixture
def topic(request):
    """A topic of this test's own."""
    return unique(f"t/{request.node.originalname}")


@pytest.fixture
def v5(column):
    return "311" not in column


@pytest.fixture
def elapse(broker):
    """Lets time pass by the broker's clock: waits for a will that the broker delays so long."""

    def wait(seconds):
        watcher, leaver = PahoClient(broker, V5), PahoClient(broker, V5)
        name = unique("t/elapsed")
        watcher.connect()
        watcher.subscribe(name)
        leaver.connect(will=Will(name, b"", properties={"WillDelayInterval": seconds}), properties={"SessionExpiryInterval": seconds + 60})
        leaver.drop()
        watcher.receive(seconds + DEADLINE)
        watcher.close()

    return wait
