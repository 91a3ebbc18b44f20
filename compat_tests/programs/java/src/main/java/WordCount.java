import java.nio.file.Path;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
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
    Properties config = new Properties();
    config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    config.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
    config.put(StreamsConfig.STATE_DIR_CONFIG, Path.of(arguments[4]).toString());
    config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
    config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
    config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    config.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 6000);
    for (String setting : Arrays.copyOfRange(arguments, 5, arguments.length)) {
      String[] pair = setting.split("=", 2);
      config.put(pair[0], pair[1]);
    }
    CountDownLatch ended = new CountDownLatch(1);
    KafkaStreams streams = new KafkaStreams(topology(arguments[2], arguments[3]).build(), config);
    streams.setStateListener((now, before) -> {
      if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) {
        ended.countDown();
      }
      System.out.println(now);
    });
    Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
    streams.start();
    ended.await();
    System.exit(streams.state() == KafkaStreams.State.ERROR ? 1 : 0);
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
