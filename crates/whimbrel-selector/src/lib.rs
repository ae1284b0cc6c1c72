//! Topic names, topic filters and the index that finds who wants a topic.
