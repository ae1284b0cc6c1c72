//! Passes other brokers' questions to the API, and their answers to the task that asked.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use whimbrel_event::HostId;

/// Questions that wait for the answering task, at most; the rest are dropped, and their brokers ask
/// again.
const ASKED_MAX: usize = 64;

/// Texts in each list of a [`Bag`], at most; the rest are dropped.
const BAG_MAX: usize = 256;

/// A text from another broker: its question, or its answer to a question of this broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) from: HostId,
    /// The asking broker's number for the question.
    pub(crate) number: u64,
    pub(crate) text: String,
}

/// Texts that the machine has received since it was last let go of.
#[derive(Debug, Default)]
pub(super) struct Bag {
    pub(super) asked: Vec<Text>,
    pub(super) answered: Vec<Text>,
}

impl Bag {
    /// Adds a text to one of the bag's lists if there is room.
    pub(super) fn put(list: &mut Vec<Text>, from: HostId, number: u64, text: &str) {
        if list.len() < BAG_MAX {
            list.push(Text { from, number, text: text.to_owned() });
        }
    }
}

/// Channels to the answering task and to the tasks that wait for answers.
#[derive(Debug)]
pub(super) struct Post {
    answering: Mutex<Option<mpsc::Sender<Text>>>,
    waiting: Mutex<HashMap<u64, mpsc::Sender<Text>>>,
    next: AtomicU64,
}

impl Post {
    /// `first` is the number of the first question. It is greater than those of the broker's
    /// earlier incarnations, whose answers may still arrive.
    pub(super) fn new(first: u64) -> Post {
        Post { answering: Mutex::default(), waiting: Mutex::default(), next: AtomicU64::new(first) }
    }

    /// The questions that arrive from now on.
    pub(super) fn questions(&self) -> mpsc::Receiver<Text> {
        let (sender, receiver) = mpsc::channel(ASKED_MAX);
        *self.answering.lock() = Some(sender);
        receiver
    }

    /// Hands out the bag's texts. A text without a receiver, or without room, is lost as if on its
    /// way.
    pub(super) fn deliver(&self, bag: Bag) {
        if !bag.asked.is_empty()
            && let Some(answering) = &*self.answering.lock()
        {
            bag.asked.into_iter().for_each(|text| drop(answering.try_send(text)));
        }
        if !bag.answered.is_empty() {
            let waiting = self.waiting.lock();
            for text in bag.answered {
                if let Some(asking) = waiting.get(&text.number) {
                    let _ = asking.try_send(text);
                }
            }
        }
    }

    /// Registers a new question; at most `room` of its answers wait to be received.
    pub(super) fn begin(self: &Arc<Self>, room: usize) -> Asking {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answers) = mpsc::channel(room.max(1));
        self.waiting.lock().insert(number, sender);
        Asking { number, answers, post: self.clone() }
    }
}

/// A question to other brokers; ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) number: u64,
    pub(crate) answers: mpsc::Receiver<Text>,
    post: Arc<Post>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.post.waiting.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(number: u64) -> Text {
        Text { from: HostId::new(16), number, text: "x".into() }
    }

    #[test]
    fn answers_go_to_who_has_asked_and_to_nobody_afterwards() {
        let post = Arc::new(Post::new(7));
        let (mut first, second) = (post.begin(1), post.begin(1));
        assert_eq!((first.number, second.number), (7, 8));
        // There is room for one answer, and question 9 has not been asked.
        post.deliver(Bag { asked: Vec::new(), answered: vec![text(7), text(7), text(9)] });
        assert_eq!(first.answers.try_recv(), Ok(text(7)));
        assert!(first.answers.try_recv().is_err());
        drop((first, second));
        assert!(post.waiting.lock().is_empty());
    }

    #[test]
    fn questions_wait_in_bounds_for_whoever_answers() {
        let post = Post::new(0);
        post.deliver(Bag { asked: vec![text(1)], answered: Vec::new() });
        let mut questions = post.questions();
        post.deliver(Bag { asked: (0..ASKED_MAX as u64 + 5).map(text).collect(), answered: Vec::new() });
        let came = std::iter::from_fn(|| questions.try_recv().ok()).count();
        assert_eq!(came, ASKED_MAX);
        let mut bag = Bag::default();
        (0..=BAG_MAX).for_each(|_| Bag::put(&mut bag.asked, HostId::new(16), 1, "?"));
        assert_eq!(bag.asked.len(), BAG_MAX);
    }
}
