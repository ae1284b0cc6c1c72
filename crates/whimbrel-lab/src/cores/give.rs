//! Calls a core with a task.

use whimbrel_core::{
    Attach, Broker, Filter, Input, Output, PeerInput, Publish, RetainHandling, Start, SubscriptionSpec,
};
use whimbrel_event::{Qos, Time};

use super::{Ask, Task, Wish};

/// Calls the core's operation for a client's request or an event of a link.
pub(super) fn give(core: &mut Broker, now: Time, task: Task, out: &mut dyn Output) {
    let peer = |core: &mut Broker, input, out: &mut dyn Output| core.handle(now, Input::Peer(input), out);
    match task {
        Task::Ask(ask) => give_ask(core, now, ask, out),
        Task::Bytes(link, channel, bytes) => peer(core, PeerInput::Bytes { link, channel, bytes: &bytes }, out),
        Task::Room(link, channel, unsent) => peer(core, PeerInput::Room { link, channel, unsent }, out),
        Task::Opened(link, dialed) => peer(core, PeerInput::Opened { link, dialed, name: None }, out),
        Task::Closed(link) => peer(core, PeerInput::Closed { link }, out),
        Task::Deadline => core.handle(now, Input::Deadline, out),
        Task::Committed | Task::Read => unreachable!("the log's own"),
    }
}

fn give_ask(core: &mut Broker, now: Time, ask: Ask, out: &mut dyn Output) {
    match ask {
        Ask::Attach { link, client, lasting, window } => {
            let (client_id, clean_start, expiry) = (client.as_str(), lasting.is_zero(), lasting);
            let attach = Attach {
                link,
                client_id,
                clean_start,
                expiry,
                window,
                will: None,
                without_copy: false,
                principal: None,
            };
            core.handle(now, Input::Attach(attach), out);
        }
        Ask::Detach(link) => core.handle(now, Input::Detach { link, publish_will: false, expiry: None }, out),
        Ask::Subscribe(link, wish) => {
            let Wish { filter, selector, durability, qos, from, by_token, notices } = *wish;
            let start = from.as_ref().map_or(Start::Own, |token| Start::Token(token, &[]));
            let spec = SubscriptionSpec { durability, by_token, notices, named: true, ..SubscriptionSpec::new(qos) };
            let filter = Filter {
                filter: &filter,
                selector: selector.as_ref(),
                spec,
                start,
                retain_handling: RetainHandling::DoNotSend,
                wants_token: by_token,
            };
            core.handle(now, Input::Subscribe { link, tag: 1, filters: &[filter] }, out);
        }
        Ask::Publish(link, tag, event) => {
            let publish = Publish { link, tag, retain: false, number: None, event: &event.view() };
            core.handle(now, Input::Publish(publish), out);
        }
        Ask::Acknowledge(link, token) => {
            let (tag, qos, identifier) = (0, Qos::AtMostOnce, 0);
            core.handle(now, Input::Acknowledge { link, tag, qos, identifier, token: &token }, out);
        }
        Ask::Writable(link) => core.handle(now, Input::Writable { link }, out),
    }
}
