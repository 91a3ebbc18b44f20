import java.util.Arrays;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts the words of one topic into another, exactly once, until it is ended.
 *
 * <p>WordCount BOOTSTRAP APPLICATION FROM TO STATE_FOLDER [CONFIG=VALUE...]. Has everything that an everyday
 * Streams program has: a topic for regrouping, a state store, and the store's changelog.
 */
public final class WordCount {
  private WordCount() {}

  public static void main(String[] arguments) throws InterruptedException {
    String[] settings = Arrays.copyOfRange(arguments, 5, arguments.length);
    RunningStreams.run(
        topology(arguments[2], arguments[3]),
        RunningStreams.config(arguments[0], arguments[1], arguments[4], settings));
  }

  private static StreamsBuilder topology(String from, String to) {
    StreamsBuilder builder = new StreamsBuilder();
    KStream<String, String> lines = builder.stream(from);
    lines
        .flatMapValues(line -> Arrays.asList(line.split(" ")))
        .groupBy((key, word) -> word, Grouped.as("words"))
        .count(Materialized.as("counts"))
        .toStream()
        .to(to, Produced.with(Serdes.String(), Serdes.Long()));
    return builder;
  }
}
