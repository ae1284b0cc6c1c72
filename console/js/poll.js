// Asking again and again, while somebody looks.

/** Runs `work` at once and then `every` ms after it is done, between `start` and `stop`, while the page can be seen. */
export class Poller {
  #work;
  #every;
  #timer = 0;
  #isOn = false;
  #isBusy = false;
  #isStale = false;

  constructor(every, work) {
    this.#every = every;
    this.#work = work;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.#isOn) this.now();
    });
  }

  start() {
    if (this.#isOn) return;
    this.#isOn = true;
    this.now();
  }

  stop() {
    this.#isOn = false;
    clearTimeout(this.#timer);
  }

  /** Asks without waiting for its time; once more if it is being asked just now. */
  async now() {
    clearTimeout(this.#timer);
    if (this.#isBusy) {
      this.#isStale = true;
      return;
    }
    this.#isBusy = true;
    try {
      await this.#work();
    } finally {
      this.#isBusy = false;
    }
    if (!this.#isOn) return;
    const isStale = this.#isStale;
    this.#isStale = false;
    if (isStale) this.now();
    else if (!document.hidden) this.#timer = setTimeout(() => this.now(), this.#every);
  }
}
