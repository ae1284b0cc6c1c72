"""The matrix of docs/mqtt-clients.md: features, clients, and what a client cannot do by its nature."""

# Test id of the column: title.
COLUMNS = {
    "mosquitto311": "mosquitto_pub/sub, 3.1.1",
    "mosquitto5": "mosquitto_pub/sub, 5",
    "paho311": "paho-mqtt, 3.1.1",
    "paho5": "paho-mqtt, 5",
    "mqttjs311": "MQTT.js in Chromium, 3.1.1, WebSocket",
    "mqttjs5": "MQTT.js in Chromium, 5, WebSocket",
    "mqttjs5wss": "MQTT.js in Chromium, 5, WebSocket with TLS",
}

# Name that tests carry in `@pytest.mark.feature`: title of the row.
FEATURES = {
    "connect": "connect, clean start, session present",
    "assigned-id": "assigned client identifier",
    "tcp": "TCP",
    "tls": "TLS",
    "ws": "WebSocket",
    "wss": "WebSocket with TLS",
    "qos0": "QoS 0, both directions",
    "qos1": "QoS 1, both directions",
    "qos2": "QoS 2, both directions",
    "wildcards": "wildcard filters",
    "dollar": "wildcards do not match topics that begin with `$`",
    "retain-set": "retained message set",
    "retain-replace": "retained message replaced",
    "retain-clear": "retained message cleared",
    "retain-handling": "retain handling 0, 1, 2",
    "retain-as-published": "retain as published",
    "no-local": "no local",
    "will": "will on abrupt close",
    "will-delay": "will delay",
    "will-reconnect": "delayed will cancelled by a reconnect",
    "will-disconnect": "will cancelled by DISCONNECT",
    "will-requested": "DISCONNECT with will (0x04)",
    "will-retained": "retained will",
    "session-expiry": "session expiry",
    "takeover": "session takeover (0x8E)",
    "queue-qos1": "offline session: QoS 1 queued, in order",
    "queue-qos2": "offline session: QoS 2 queued, in order",
    "shared": "shared subscription: each message once over the group",
    "shared-leave": "shared subscription: a member leaves",
    "subscription-id": "subscription identifiers",
    "alias-in": "topic alias, client to broker",
    "alias-out": "topic alias, broker to client",
    "receive-maximum-client": "receive maximum of the client",
    "receive-maximum-broker": "receive maximum of the broker",
    "maximum-packet-client": "maximum packet size of the client",
    "maximum-packet-broker": "maximum packet size of the broker",
    "keep-alive": "keep-alive timeout at 1.5 times the interval",
    "ping": "ping",
    "message-expiry": "message expiry interval",
    "request-response": "response topic and correlation data",
    "properties": "user properties, content type, payload format",
    "reason-filter": "reason code of a bad filter",
    "reason-publish": "reason code of a refused publish",
    "unsubscribe": "unsubscribe",
    "sys": "`$SYS`",
    "large": "payload of 1 MB",
    "many-topics": "many topics",
    "selector": "selector (`w-selector`): attributes",
    "selector-payload": "selector: JSON payload",
    "selector-importance": "selector: importance",
    "selector-fence": "selector: position in a fence",
    "selector-fence-change": "selector: fences read again",
    "selector-refused": "selector: refused with its cause",
    "selector-replaced": "selector: replaced by another one, or none",
    "selector-retained": "selector: retained messages",
    "selector-session": "selector: kept with the session",
    "selector-shared": "selector: shared subscription",
    "semi-durable": "semi-durable subscription (`w-durability`): a session that returns gets what it missed",
    "semi-durable-token": "semi-durable: the client keeps the position (`w-token`, `w-id`, `w-from`)",
    "semi-durable-notices": "semi-durable: gaps and silence as notices",
    "semi-durable-ack": "semi-durable: acknowledgement by token (`$whimbrel/ack`)",
    "semi-durable-refused": "semi-durable: refused with its cause",
}

_V311 = ("mosquitto311", "paho311", "mqttjs311")
_MOSQUITTO = ("mosquitto311", "mosquitto5")
_JS = ("mqttjs311", "mqttjs5", "mqttjs5wss")

_MQTT5_ONLY = (
    "retain-handling", "retain-as-published", "no-local", "will-delay", "will-reconnect", "will-requested", "session-expiry",
    "subscription-id", "alias-in", "alias-out", "receive-maximum-client", "receive-maximum-broker", "maximum-packet-client",
    "message-expiry", "request-response", "properties",
)

_SELECTORS = (
    "selector", "selector-payload", "selector-importance", "selector-fence", "selector-fence-change", "selector-refused",
    "selector-replaced", "selector-retained", "selector-session", "selector-shared",
)

_SEMI_DURABLE = ("semi-durable", "semi-durable-token", "semi-durable-notices", "semi-durable-ack", "semi-durable-refused")

# (features, columns, reason)
_NOT_APPLICABLE = (
    (_MQTT5_ONLY, _V311, "3.1.1 has no such field"),
    (_SELECTORS, _V311, "3.1.1 has no user properties"),
    (_SEMI_DURABLE, _V311, "3.1.1 has no user properties"),
    (("ws", "wss"), _MOSQUITTO, "speaks no WebSocket"),
    (("tcp", "tls"), _JS, "a page opens WebSockets only"),
    (("retain-handling", "no-local"), ("mosquitto5",), "has no option for it"),
    (("alias-out",), ("mosquitto5",), "knows no aliases from the broker"),
)

NOT_APPLICABLE = {
    (feature, column): reason for features, columns, reason in _NOT_APPLICABLE for feature in features for column in columns
}
