//! Questions of other brokers on their way to whoever answers them, and other brokers' answers on
//! their way to whoever has asked.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use whimbrel_event::HostId;

/// Questions that wait for whoever answers them. Others are asked again by their brokers.
const ASKED_MAX: usize = 64;

/// What came for a moment at the machine, before it is let go of.
const BAG_MAX: usize = 256;

/// A text from another broker: a question of its, or the answer to one of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) from: HostId,
    /// The asking broker's number for the question.
    pub(crate) number: u64,
    pub(crate) text: String,
}

/// What the machine has got for the post since it was let go of last.
#[derive(Debug, Default)]
pub(super) struct Bag {
    pub(super) asked: Vec<Text>,
    pub(super) answered: Vec<Text>,
}

impl Bag {
    /// Adds one of its lists' texts, as far as there is room.
    pub(super) fn put(list: &mut Vec<Text>, from: HostId, number: u64, text: &str) {
        if list.len() < BAG_MAX {
            list.push(Text { from, number, text: text.to_owned() });
        }
    }
}

/// Who answers, and who waits for answers.
#[derive(Debug)]
pub(super) struct Post {
    answering: Mutex<Option<mpsc::Sender<Text>>>,
    waiting: Mutex<HashMap<u64, mpsc::Sender<Text>>>,
    next: AtomicU64,
}

impl Post {
    /// `first` is the number of the first question: greater than those of the broker's lives
    /// before, whose answers may still come.
    pub(super) fn new(first: u64) -> Post {
        Post { answering: Mutex::default(), waiting: Mutex::default(), next: AtomicU64::new(first) }
    }

    /// The questions that come from now on.
    pub(super) fn questions(&self) -> mpsc::Receiver<Text> {
        let (sender, receiver) = mpsc::channel(ASKED_MAX);
        *self.answering.lock() = Some(sender);
        receiver
    }

    /// Hands out what has come. What nobody takes is lost, as on its way.
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

    /// A number for a new question, at most `room` answers to which wait to be looked at.
    pub(super) fn begin(self: &Arc<Self>, room: usize) -> Asking {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answers) = mpsc::channel(room.max(1));
        self.waiting.lock().insert(number, sender);
        Asking { number, answers, post: self.clone() }
    }
}

/// A question that others were asked, until it is dropped.
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
        // There is room for one, and nobody has asked the last one.
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
