"""paho-mqtt (Python) as a driver."""

import socket
import ssl

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from model import V5, Ack, Client, Connack, Message, Refused, unique


class _Paho(mqtt.Client):
    """Tells of PINGRESP, and can be kept from pinging."""

    pingresps = 0
    silent = False
    on_pingresp = None

    def _handle_pingresp(self):
        result = super()._handle_pingresp()
        self.on_pingresp()
        return result

    def _check_keepalive(self):
        if not self.silent:
            super()._check_keepalive()


def _to_paho(packet, properties):
    if properties is None:
        return None
    result = Properties(packet)
    for name, value in properties.items():
        setattr(result, name, value)
    return result


def _from_paho(properties):
    if properties is None:
        return {}
    return {name.replace(" ", ""): getattr(properties, name.replace(" ", "")) for name in properties.names.keys()
            if hasattr(properties, name.replace(" ", ""))}


class PahoClient(Client):
    transports = ("tcp", "tls", "ws", "wss")

    def __init__(self, broker, version):
        super().__init__(broker)
        self.version = version
        self.client_id = None
        self._client = None
        self._connack = None
        self._hold_acks = False
        self._held = []
        self._aliases = {}
        self._pings = 0

    def connect(self, client_id=None, clean=True, keepalive=60, will=None, properties=None, transport=None, hold_acks=False):
        transport = transport or self.transports[0]
        self.client_id = unique("paho") if client_id is None else client_id
        self._hold_acks = hold_acks
        self._connack = None
        self._aliases = {}
        self._note_open()
        self._client = self._new_client(clean, transport, hold_acks)
        if will is not None:
            self._client.will_set(will.topic, will.payload, will.qos, will.retain,
                                  _to_paho(PacketTypes.WILLMESSAGE, will.properties) if self.version == V5 else None)
        host, port = self.broker.address(transport)
        arguments = {}
        if self.version == V5:
            arguments = {"clean_start": clean, "properties": _to_paho(PacketTypes.CONNECT, properties or {})}
        self._client.connect(host, port, keepalive, **arguments)
        self._client.loop_start()
        connack = self.wait_for(lambda: self._connack or (self._closed and "closed"), "CONNACK")
        if connack == "closed":
            raise Refused(None, "the connection ended")
        code, session_present, given = connack
        if code >= 0x80:
            raise Refused(code, str(given))
        return Connack(session_present, given)

    def _new_client(self, clean, transport, hold_acks):
        arguments = {} if self.version == V5 else {"clean_session": clean}
        client = _Paho(CallbackAPIVersion.VERSION2, client_id=self.client_id, protocol=self.version, manual_ack=hold_acks,
                       transport="websockets" if transport in ("ws", "wss") else "tcp", reconnect_on_failure=False, **arguments)
        if transport in ("tls", "wss"):
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            client.tls_set_context(context)
        client.max_inflight_messages_set(65535)
        client.on_connect = self._on_connect
        client.on_disconnect = lambda _c, _u, flags, code, _p: self._note_closed(
            code.value if flags.is_disconnect_packet_from_server else None)
        client.on_message = self._on_message
        client.on_subscribe = lambda _c, _u, mid, codes, given: self._note_ack(
            ("suback", mid), Ack([code.value for code in codes], _from_paho(given)))
        client.on_unsubscribe = lambda _c, _u, mid, codes, given: self._note_ack(
            ("unsuback", mid), Ack([code.value for code in codes], _from_paho(given)))
        client.on_publish = lambda _c, _u, mid, code, given: self._note_ack(
            ("puback", mid), Ack([code.value], _from_paho(given)))
        client.on_pingresp = self._on_pingresp
        return client

    def _on_connect(self, _client, _userdata, flags, code, properties):
        with self._changed:
            self._connack = (code.value, flags.session_present, _from_paho(properties))
            self._changed.notify_all()

    def _on_pingresp(self):
        with self._changed:
            self._pings += 1
            self._changed.notify_all()

    def _on_message(self, _client, _userdata, paho):
        properties = _from_paho(paho.properties)
        topic = paho.topic
        alias = properties.get("TopicAlias")
        if alias is not None:
            topic = self._aliases.setdefault(alias, topic) if not topic else topic
            self._aliases[alias] = topic
        if paho.qos:
            self._note_unacked(1)
            if self._hold_acks:
                self._held.append((paho.mid, paho.qos))
        self._note_message(Message(topic, paho.payload, paho.qos, bool(paho.retain), bool(paho.dup), properties, paho.topic))
        if paho.qos and not self._hold_acks:
            self._note_unacked(-1)

    def subscribe(self, *filters, qos=0, no_local=False, retain_as_published=False, retain_handling=0, properties=None):
        if self.version == V5:
            options = SubscribeOptions(qos, no_local, retain_as_published, retain_handling)
            _, mid = self._client.subscribe([(f, options) for f in filters], properties=_to_paho(PacketTypes.SUBSCRIBE, properties))
        else:
            _, mid = self._client.subscribe([(f, qos) for f in filters])
        return self._wait_ack(("suback", mid), "SUBACK")

    def unsubscribe(self, *filters):
        _, mid = self._client.unsubscribe(list(filters))
        return self._wait_ack(("unsuback", mid), "UNSUBACK")

    def start_publish(self, topic, payload=b"", qos=0, retain=False, properties=None):
        given = _to_paho(PacketTypes.PUBLISH, properties) if self.version == V5 else None
        return self._client.publish(topic, payload, qos, retain, given).mid

    def finish_publish(self, handle):
        return self._wait_ack(("puback", handle), "the publish to be acknowledged")

    def release_ack(self):
        mid, qos = self.wait_for(lambda: self._held.pop(0) if self._held else None, "a message to acknowledge")
        self._note_unacked(-1)
        self._client.ack(mid, qos)

    def ping(self):
        before = self._pings
        self._client._send_pingreq()
        self.wait_for(lambda: self._pings > before, "PINGRESP")

    def fall_silent(self):
        self._client.silent = True

    def disconnect(self, reason=0, properties=None):
        if self.version == V5:
            self._client.disconnect(ReasonCode(PacketTypes.DISCONNECT, identifier=reason), _to_paho(PacketTypes.DISCONNECT, properties))
        else:
            self._client.disconnect()
        self.wait_closed()
        self._client.loop_stop()

    def drop(self):
        self._client.socket().shutdown(socket.SHUT_RDWR)
        self.wait_closed()
        self._client.loop_stop()

    def close(self):
        if self._client is not None and self._client.socket() is not None:
            self._client.disconnect()
        if self._client is not None:
            self._client.loop_stop()
